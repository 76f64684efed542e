"""Apply a suggestion exactly as printed."""

from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.admission import Admitted, Refused, Suggestion, SuggestionKind, admit, release, restore
from penstock.model.book import Book
from penstock.model.cluster import Link, Machine
from penstock.model.topology import Application


class Asked(NamedTuple):
    """A request for admission to a book."""

    book: Book
    application: Application
    paths: int = 8

    def answer(self, **options: Any) -> Admitted | Refused:
        return admit(self.book, self.application, paths=self.paths, **options)

    def refusal(self) -> Refused:
        found = self.answer()
        assert isinstance(found, Refused), found
        return found

    def after(self, remedy: Suggestion) -> "Asked":
        """Return the same after applying a suggestion with its printed digits."""
        asked = self
        for change in (remedy, *remedy.also):
            asked = asked._after_one(change)
        return asked

    def lets_in(self, remedy: Suggestion) -> bool:
        return isinstance(self.after(remedy).answer(advise=False), Admitted)

    def _after_one(self, change: Suggestion) -> "Asked":
        amount, name = float(f"{change.after:.4g}"), change.element
        if change.kind is SuggestionKind.RATE:
            return self._replace(application=replace(self.application, guaranteed_tps=amount))
        if change.kind is SuggestionKind.AVAILABILITY:
            return self._replace(application=replace(self.application, availability=amount))
        if change.kind is SuggestionKind.PATHS:
            return self._replace(paths=int(amount))
        if change.kind is SuggestionKind.RELEASE:
            return self._replace(book=release(self.book, name))
        if change.kind is SuggestionKind.RESTORE:
            return self._replace(book=restore(self.book, name).book)
        cluster = self.book.cluster
        machines = tuple(_machine(one, change, amount) if one.name == name else one for one in cluster.machines)
        links = tuple(_link(one, amount) if one.label == name else one for one in cluster.links)
        return self._replace(book=replace(self.book, cluster=replace(cluster, machines=machines, links=links)))


def _machine(machine: Machine, change: Suggestion, amount: float) -> Machine:
    if change.kind is SuggestionKind.CPU:
        return replace(machine, speed=amount / machine.cores)
    if change.kind is SuggestionKind.MEMORY:
        return replace(machine, memory_mb=amount)
    if change.kind is SuggestionKind.RESOURCE:
        return replace(machine, resources={**machine.resources, change.resource: amount})
    sends, receives = machine.card_mbps or (0.0, 0.0)
    if "out" in change.resource:
        return replace(machine, network_mbps=amount, receive_mbps=receives)
    return replace(machine, network_mbps=sends, receive_mbps=amount)


def _link(link: Link, amount: float) -> Link:
    return replace(link, bandwidth_mbps=amount)
