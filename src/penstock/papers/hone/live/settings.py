"""Applications of the live experiments: a word count on emulated machines, with the same costs and sizes for all.

Everything is some hundred times slower than in a real cluster, so that two cores of a host can emulate it: tasks take
milliseconds, cards carry kilobytes per second. The relevant properties for tuple policies are kept: sentences of very
different lengths, a stream that multiplies tuples and bytes, tasks of one component that share a card.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from penstock.api.contracts import Operator
from penstock.api.dataflow import Dataflow
from penstock.api.keys import Named
from penstock.api.sinks.discard import Discard
from penstock.api.sources.generated import Generated
from penstock.estimate.evaluator import Evaluation
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.topology import Grouping
from penstock.papers.hone.live.episodes import STEADY, Episodes, EpisodeSentences, Lengths, sentences
from penstock.planning.planner import Planner
from penstock.workloads.running.counts import Count
from penstock.workloads.storm_applications import EXPONENTIAL, gamma

WORD_BYTES = 52  # of a word's tuple in DSPBench, most of it not the word
PASSED_ON = 8  # one of this number of counts is passed on
MILLISECOND = 1e-3
WORDS = 32  # maximum per sentence
NEAR = Distances(same_slot_ms=0.02, same_process_ms=0.02, same_host_ms=0.05, other_host_ms=0.5)
SAMPLE = 2000  # sentences for measuring sizes
PLACEHOLDER = Lengths(1.0, 1.0, 0.0, 0.0)


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A word, and padding instead of all other fields of a tuple."""

    text: str
    rest: bytes = bytes(WORD_BYTES - 8)


def split(sentence: str) -> list[Word]:
    """Return the words of a sentence."""
    return [Word(text) for text in sentence.split()]


class CountWords(Operator[Word, Count]):
    """Counts words; every eighth count is passed on, so that a database is updated at low cost."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._seen = 0

    def process(self, value: Word) -> tuple[Count] | None:
        """Count a word."""
        self._seen += 1
        count = self._counts[value.text] = self._counts.get(value.text, 0) + 1
        return None if self._seen % PASSED_ON else ((value.text, count),)

    def snapshot(self) -> dict[str, int]:
        """Return all counts."""
        return self._counts

    def restore(self, state: dict[str, int]) -> None:
        """Continue from restored counts."""
        self._counts, self._seen = state, sum(state.values())


@dataclass(frozen=True)
class EmulatedWordCount:
    """A word count of some shape on some machines.

    tasks, cpu_ms: of source, split, count and, if there is one, database, in this order.
    grouping: of the stream from split to count. words: maximum per sentence.
    """

    cluster: Cluster
    policy: str  # for its placement
    tasks: tuple[int, ...]
    cpu_ms: tuple[float, ...]
    grouping: Grouping = Grouping.FIELDS
    words: int = WORDS

    def flow(self, episodes: Episodes) -> Dataflow:
        """Return the application, fed by episodes."""
        flow = Dataflow("word-count")
        sizes = self.sizes
        source = Generated(EpisodeSentences(episodes, self.words), arrivals=episodes)
        lines = flow.source("source", source, emits=str, **self._costs(0)).costing(tuple_bytes=sizes[0])
        words = flow.flat_map("split", split, lines, **self._costs(1))
        words = words.costing(selectivity=(1 + self.words) / 2, tuple_bytes=sizes[1])
        by_word = Named("word", "text")
        grouped = {
            Grouping.FIELDS: words.fields(by_word),
            Grouping.PARTIAL_KEY: words.partial_key(by_word),
            Grouping.SHUFFLE: words.shuffle(),
        }[self.grouping]
        if len(self.tasks) == 3:
            flow.sink("count", Discard(), grouped, **self._costs(2))
            return flow
        counts = flow.operator("count", CountWords, grouped, **self._costs(2))
        counts = counts.costing(selectivity=1 / PASSED_ON, tuple_bytes=sizes[2])
        flow.sink("database", Discard(), counts, **self._costs(3))
        return flow

    def _costs(self, place: int) -> dict[str, Any]:
        cpu = self.cpu_ms[place] * MILLISECOND
        return {"parallelism": self.tasks[place], "cpu": cpu, "service": SERVICES[place]}

    @cached_property
    def sizes(self) -> tuple[float, float, float]:
        """The mean bytes on the wire of a sentence, a word and a count."""
        drawn = sentences(SAMPLE, self.words, (0,))
        words = [word for sentence in drawn for word in split(sentence)]
        counts = [(word.text, 100) for word in words]
        return _bytes(drawn), _bytes(words), _bytes(counts)

    @cached_property
    def estimate(self) -> Evaluation:
        """The estimator's prediction."""
        flow = self.flow(Episodes(STEADY, 1.0, 1, 1, self.tasks[0], PLACEHOLDER))
        planner = Planner(flow.application, self.cluster)
        found = planner.decide(self.policy).evaluation
        assert found is not None
        return found

    @property
    def maximum_tps(self) -> float:
        """Maximum rate of sentences that it sustains if streams split evenly."""
        return self.estimate.even_tps

    def card_share(self, rate_tps: float) -> float:
        """Return the utilisation of the busiest network card at a rate of sentences, with evenly split streams."""
        cards = [element for element in self.estimate.even_limits if element.kind == "network"]
        return max((card.utilisation(rate_tps) for card in cards), default=0.0)


# Variation of these components' times as measured by DSPBench; a database's are assumed to be exponential.
SERVICES = (gamma(1.108), gamma(0.375), gamma(0.168), EXPONENTIAL)


def _bytes(values: list[Any]) -> float:
    return len(msgspec.msgpack.encode(values)) / len(values)


CARD_BUSY = 0.7  # of every card at the maximum rate
SPEEDS = (1.0, 1.0, 0.5)


def one_slow_machine() -> EmulatedWordCount:
    """Return the setting of the comparison: three machines, one of half the speed, each with tasks of every component.

    Placement deals tasks in turn, so every machine has a source, two splits, two counts and a database: splits that
    share a card give sending a choice, splits on fast and slow machines give routing one. The splits of the slow
    machine limit the rate if streams split evenly; the cards are then 70 % busy.
    """
    bare = _one_slow(1.0)
    return _one_slow(bare.card_share(bare.maximum_tps) / CARD_BUSY)


def _one_slow(mbps: float) -> EmulatedWordCount:
    machines = tuple(
        Machine(name=f"m{number}", cores=6, slots=6, speed=speed, network_mbps=mbps)
        for number, speed in enumerate(SPEEDS)
    )
    cluster = Cluster(name="one-slow", machines=machines, distances=NEAR)
    return EmulatedWordCount(cluster, "round-robin", (3, 6, 6, 3), (3.0, 30.0, 0.5, 2.0))


HONE_TASKS = 10  # of every component
HONE_TPS = (1170, 1250, 1330)
HONE_SLOWER = 13.3  # factor between Hone's rates and ours
HONE_BUSY = 0.95  # of the busiest card at the highest rate
HONE_NODES: dict[int, tuple[int, ...]] = {3: (10, 10, 10), 10: (4, 3, 3, 3, 3, 2, 2, 4, 3, 3)}
"""Slots of every machine; tasks are dealt to them in order, so that a machine has tasks of one component only."""


def hone_testbed(nodes: int = 3, grouping: Grouping = Grouping.SHUFFLE, words: int = WORDS) -> EmulatedWordCount:
    """Return Hone's testbed: ten tasks per component, each component on machines of its own, cards that may be busy.

    The paper does not say what limits; here it is the card of the machines with splits, because a sending rule affects
    it. Cards are 95 % busy at the highest rate with sentences of up to 32 words.
    """
    wide = _testbed(nodes, grouping, WORDS, 1.0)
    mbps = wide.card_share(HONE_TPS[-1] / HONE_SLOWER) / HONE_BUSY
    return _testbed(nodes, grouping, words, mbps)


def _testbed(nodes: int, grouping: Grouping, words: int, mbps: float) -> EmulatedWordCount:
    machines = tuple(
        Machine(name=f"n{number}", cores=slots, slots=slots, network_mbps=mbps)
        for number, slots in enumerate(HONE_NODES[nodes])
    )
    cluster = Cluster(name=f"hone-{nodes}", machines=machines, distances=NEAR)
    cpu_ms = (3.0, 30.0, 2.0)
    return EmulatedWordCount(cluster, "round-robin:order=listed", (HONE_TASKS,) * 3, cpu_ms, grouping, words)
