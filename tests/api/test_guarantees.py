import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.guarantees import guarantees, require_guarantee
from penstock.api.sinks.console import Console
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sinks.parquet import Parquet
from penstock.api.sources.generated import Generated
from penstock.api.sources.landed import Landed
from penstock.api.sources.lines import Lines
from penstock.api.sources.tcp import TcpLines
from penstock.model.errors import InvalidInput, UnknownName


def flow_of(source: object, *sinks: object) -> Dataflow:
    flow = Dataflow("shop")
    upper = flow.map("upper", str.upper, flow.source("feed", source))  # type: ignore[arg-type]
    for number, sink in enumerate(sinks):
        flow.sink(f"out{number}", sink, upper)  # type: ignore[arg-type]
    return flow


def test_says_what_each_source_and_sink_promises() -> None:
    flow = flow_of(Lines("book.txt"), JsonLines("output"), Console)
    flow.source("live", TcpLines("localhost", 9999))
    assert [str(found) for found in guarantees(flow)] == [
        "source 'feed' (Lines): exactly once: it rewinds",
        "sink 'out0' (JsonLines): exactly once: output becomes visible with a complete checkpoint",
        "sink 'out1' (Console): at least once after a failure: its output cannot be withdrawn",
        "source 'live' (TcpLines): at most once after a failure: TcpLines cannot rewind",
    ]
    assert [found.exactly_once for found in guarantees(flow)] == [True, True, False, False]


@pytest.mark.parametrize("source", [Lines("book.txt"), Generated(str), Landed("landing")])
def test_accepts_exactly_once_if_every_component_supports_it(source: object) -> None:
    flow = flow_of(source, JsonLines("output"), Parquet("table"), Discard())
    require_guarantee(flow, "exactly-once")
    assert all(found.exactly_once for found in guarantees(flow))


def test_rejects_exactly_once_if_a_source_cannot_rewind() -> None:
    flow = flow_of(TcpLines("localhost", 9999), Discard())
    with pytest.raises(InvalidInput) as raised:
        require_guarantee(flow, "exactly-once")
    assert raised.value.path == "shop.feed"
    assert "TcpLines cannot; store its input in files and read them with Lines" in str(raised.value)
    require_guarantee(flow, "any")


def test_rejects_exactly_once_if_a_sink_cannot_withdraw() -> None:
    flow = flow_of(Generated(str), Discard(), Console())
    with pytest.raises(InvalidInput) as raised:
        require_guarantee(flow, "exactly-once")
    assert raised.value.path == "shop.out1"
    assert "Console cannot; use a sink that extends PartFiles, such as JsonLines or Parquet, or" in str(raised.value)
    require_guarantee(flow, "any")


def test_names_the_guarantees_that_there_are() -> None:
    with pytest.raises(UnknownName, match="guarantee: unknown guarantee 'twice'; there are any, exactly-once"):
        require_guarantee(flow_of(Generated(str), Discard()), "twice")
