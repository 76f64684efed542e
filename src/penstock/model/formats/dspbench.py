"""Applications measured by DSPBench (Bordin et al. 2020): the costs, selectivities and tuple sizes of their operators.

A csv table contains one row per operator, a json file the streams between operators. `cpu` is the median over
five-second windows of the mean processing time; its variation is that of the last window. A stream's selectivity is the
number of tuples emitted per tuple received by its sender. An operator with several streams sends every tuple on each of
them (measurements show that each receiver gets the number of tuples that the sender emitted), so nothing is divided.
The table contains neither parallelism (all components have one task) nor memory (0).
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from penstock.model.errors import FileProblem, InvalidInput, choices
from penstock.model.files import read_text
from penstock.model.formats.reading import bad_line, naming, parse_number, read_json
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

MILLISECOND = 1e-3

# Operators that have another name in the streams than in the table. Each pair was identified by its tuple counts: the
# tuples received by one according to the streams equal those received by the other according to the table. One row
# `sink` stands for all sinks of an application; its count is their sum.
MEASURED_AS: Mapping[str, Mapping[str, str]] = {
    "clickanalytics": {
        "repeatVisit": "visitRepeat",
        "geography": "locator",
        "totalStats": "visitTotal",
        "geoStats": "totalLocator",
        "visitSink": "sink",
        "locationSink": "sink",
    },
    "logprocessing": {"volumeSink": "sink", "statusSink": "sink", "geoSink": "sink"},
}

_NUMBERS = ("tuples_received", "tuples_emitted", "proc_ms_median_of_means", "proc_ms_mean_last", "proc_ms_sd_last")
_COLUMNS = ("app", "operator", *_NUMBERS, "tuple_bytes_mean")


class OperatorMeasurement(NamedTuple):
    """One row of the table."""

    received: float
    emitted: float
    cpu: float  # s
    cv: float  # of the processing time
    tuple_bytes: float  # of its output; 0 for a sink

    @property
    def selectivity(self) -> float:
        """Tuples emitted per tuple received."""
        return self.emitted / self.received if self.received > 0 else 0.0


class DspbenchEdge(Struct):
    """One stream as the json file has it."""

    src: str
    dst: str
    grouping: Grouping


def read_applications(operators: str | Path, edges: str | Path) -> tuple[Application, ...]:
    """Read all applications in the json file of streams, with the costs of their operators from the csv table."""
    measured = read_operators(operators)
    path = Path(edges)
    streams: dict[str, list[DspbenchEdge]] = read_json(path, dict[str, list[DspbenchEdge]])
    with naming(path):
        found = []
        for name, own in streams.items():
            if name not in measured:
                raise InvalidInput(name, f"not in {operators}, which has {choices(measured)}")
            found.append(_application(name, own, measured[name]))
        return tuple(found)


def read_operators(path: str | Path) -> dict[str, dict[str, OperatorMeasurement]]:
    """Read the table of measurements: application -> operator -> row."""
    path = Path(path)
    reader = csv.DictReader(read_text(path).splitlines())
    try:
        return _table(path, reader)
    except csv.Error as error:
        raise bad_line(path, reader.line_num, f"not valid csv, {error}; correct it there") from None


def _table(path: Path, reader: "csv.DictReader[str]") -> dict[str, dict[str, OperatorMeasurement]]:
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise FileProblem(f"{path}: line 1: expected the columns {', '.join(_COLUMNS)}; {', '.join(missing)} missing")
    table: dict[str, dict[str, OperatorMeasurement]] = {}
    for row in reader:
        if any(row[column] is None for column in _COLUMNS):
            raise bad_line(path, reader.line_num, f"expected {len(reader.fieldnames or ())} fields, got fewer")
        own = table.setdefault(row["app"], {})
        if row["operator"] in own:
            raise bad_line(path, reader.line_num, f"operator: {row['operator']!r} occurs twice; remove one")
        own[row["operator"]] = _measured(path, reader.line_num, row)
    return table


def _measured(path: Path, line: int, row: Mapping[str, str]) -> OperatorMeasurement:
    received, emitted, median, mean, deviation = (
        parse_number(path, line, name, row[name], least=0.0) for name in _NUMBERS
    )
    size = row["tuple_bytes_mean"]
    return OperatorMeasurement(
        received=received,
        emitted=emitted,
        cpu=median * MILLISECOND,
        cv=deviation / mean if mean > 0 else 0.0,
        tuple_bytes=parse_number(path, line, "tuple_bytes_mean", size, least=0.0) if size else 0.0,
    )


def _application(name: str, edges: list[DspbenchEdge], table: Mapping[str, OperatorMeasurement]) -> Application:
    operators = list(dict.fromkeys(end for edge in edges for end in (edge.src, edge.dst)))
    called = MEASURED_AS.get(name, {})
    row = {operator: called.get(operator, operator) for operator in operators}
    if set(row.values()) != set(table):
        raise InvalidInput(
            name, f"its streams name {', '.join(operators)} and the table has {choices(table)}; rename to match"
        )
    senders, receivers = {edge.src for edge in edges}, {edge.dst for edge in edges}
    try:
        return Application(
            name=name,
            components=tuple(
                _component(operator, operator in receivers, operator in senders, table[row[operator]])
                for operator in operators
            ),
            streams=tuple(
                Stream(
                    source=edge.src,
                    target=edge.dst,
                    grouping=edge.grouping,
                    selectivity=table[row[edge.src]].selectivity,
                    tuple_bytes=table[row[edge.src]].tuple_bytes,
                )
                for edge in edges
            ),
        )
    except InvalidInput as error:
        raise error.below(name) from None


def _component(name: str, receives: bool, sends: bool, measured: OperatorMeasurement) -> Component:
    varies = measured.cv > 0
    return Component(
        name=name,
        kind=Kind.SOURCE if not receives else Kind.OPERATOR if sends else Kind.SINK,
        cpu=measured.cpu,
        service=ServiceTime(distribution=Distribution.GAMMA, cv=measured.cv) if varies else ServiceTime(),
    )
