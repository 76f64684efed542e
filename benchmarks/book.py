"""The book of a cluster: successive admissions, and the reallocation of rates.

Grid: Abilene (11 nodes), Aarnet (19) and Rocketfuel 1755 (87), 100 best-effort applications each, chains of three
operators between two random nodes; then a guaranteed application that fits, one that does not, with and without
suggestions, and a link that fails. Times are of this process, with the solver already imported.
"""

from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from penstock.admission import Admitted, admit, compute_shares, fail
from penstock.model.book import Book
from penstock.model.cluster import Cluster
from penstock.model.formats.repetita import read_network
from penstock.model.topology import Application, Component, Kind, Stream

NETWORKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "networks"
NAMES = ("Abilene", "Aarnet", "rf1755_real_hard")
APPLICATIONS = 100
POLICY = "sparcle"
MORE_THAN_ANY = 1e6  # tuples per second


def chain(name: str, cluster: Cluster, rng: np.random.Generator, rate: float | None = None) -> Application:
    """Draw an application."""
    ends = [str(end) for end in rng.choice([machine.name for machine in cluster.machines], size=2, replace=False)]
    parts = ("source", "one", "two", "three", "sink")
    cpu = rng.uniform(0.001, 0.01, size=5)
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK)
    pins = (ends[0], None, None, None, ends[1])
    return Application(
        name=name,
        components=tuple(
            Component(name=part, kind=kind, cpu=float(work), pinned=pin)
            for part, kind, work, pin in zip(parts, kinds, cpu, pins, strict=True)
        ),
        streams=tuple(Stream(source=a, target=b, tuple_bytes=float(rng.uniform(1e5, 1e6))) for a, b in pairwise(parts)),
        priority=float(rng.uniform(1, 3)),
        guaranteed_tps=rate,
    )


def filled(cluster: Cluster, rng: np.random.Generator) -> tuple[Book, list[float]]:
    """Admit applications; return the book and the time of each admission."""
    book, seconds = Book(cluster=cluster), []
    for number in range(APPLICATIONS):
        wanted = chain(f"a{number}", cluster, rng)
        started = perf_counter()
        found = admit(book, wanted, policy=POLICY)
        seconds.append(perf_counter() - started)
        book = found.book if isinstance(found, Admitted) else book
    return book, seconds


def timed(book: Book, rng: np.random.Generator) -> list[str]:
    """Return the cells of a network's row after admission."""
    link = book.cluster.links[0].label
    best = min(booking.rate_tps for booking in book.bookings)
    fits, too_much = chain("fits", book.cluster, rng, best), chain("too-much", book.cluster, rng, MORE_THAN_ANY)
    calls = (
        lambda: compute_shares(book),
        lambda: fail(book, link),
        lambda: admit(book, fits, policy=POLICY),
        lambda: admit(book, too_much, policy=POLICY, advise=False),
        lambda: admit(book, too_much, policy=POLICY),
    )
    cells = []
    for call in calls:
        started = perf_counter()
        call()
        cells.append(f"{perf_counter() - started:.3f} s")
    return cells


def main() -> None:
    rng = np.random.default_rng(0)
    titles = ("admitted", "admission", "last ten", "reallocate", "link fails", "guarantee", "refusal", "with advice")
    print(f"{'network':<20}" + "".join(f"{title:>13}" for title in titles))
    for name in NAMES:
        cluster = read_network(NETWORKS / f"{name}.graph")
        filled_book, seconds = filled(cluster, rng)
        cells = [f"{len(filled_book.bookings)}", f"{median(seconds):.3f} s", f"{median(seconds[-10:]):.3f} s"]
        cells += timed(filled_book, rng)
        print(f"{name:<20}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
