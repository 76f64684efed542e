"""Settings of a run: defaults and bounds, files, changes, and the reference that is generated from them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.tuples import TuplePolicies
from penstock.runtime.config import (
    BY_PATH,
    AppSpec,
    Checkpointing,
    Execution,
    FlowControl,
    Planning,
    Recovery,
    RunConfig,
    Telemetry,
    reference,
    refuse_fixed,
    value_of,
)

EVERYTHING = RunConfig(
    application=AppSpec(app="words:make", rate_tps=500.0, arrivals="poisson", parameters={"size": 3}),
    execution=Execution(master="spark://head:7077", slots=4, seed=7, umask=0o027, protect_frames=True),
    planning=Planning(policy="r-storm", objective="delay"),  # type: ignore[arg-type]
    checkpointing=Checkpointing(interval_s=0.5, guarantee="exactly-once"),
    recovery=Recovery(max_restarts=3, lease_s=1.0, silence_s=1.0),
    flow_control=FlowControl(window=64, in_flight=100),
    telemetry=Telemetry(enabled=False, sample_tps=-1.0),
    tuple_policies=TuplePolicies(routing="potus"),
    limits={"lines": 10.0},
)


@pytest.mark.parametrize("config", [RunConfig(), EVERYTHING])
def test_settings_are_read_back_equal(config: RunConfig) -> None:
    assert msgspec.json.decode(msgspec.json.encode(config), type=RunConfig) == config
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=RunConfig) == config
    assert RunConfig().changed(msgspec.to_builtins(config)) == config


def test_defaults_are_stored_too() -> None:
    stored = msgspec.to_builtins(RunConfig())
    for path, each in BY_PATH.items():
        section, _, name = path.rpartition(".")
        if section not in ("application", "tuple_policies"):
            assert (stored[section] if section else stored)[name] == each.default


def test_every_setting_has_a_meaning_and_a_valid_default() -> None:
    assert len(BY_PATH) > 30
    for path, each in BY_PATH.items():
        assert each.setting.description.endswith("."), path
        assert msgspec.convert(each.default, each.kind) == each.default, path
        assert each.default_text or "efault" in each.setting.description or each.default in (None, "", {}), path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"execution": {"slots": 0}}, "execution.slots: expected a whole number ≥ 1, got 0; leave it out for the"),
        ({"execution": {"slots": True}}, "execution.slots: expected a whole number, got True"),
        ({"execution": {"seed": -1}}, "execution.seed: expected a whole number ≥ 0, got -1; default: 0"),
        ({"execution": {"umask": "087"}}, "execution.umask: expected an octal number from 000 to 077, got '087'"),
        ({"execution": {"umask": 0o100}}, "execution.umask: expected an octal number from 000 to 077, got 100"),
        ({"execution": 3}, "execution: expected a table, got 3"),
        ({"planning": {"objective": "speed"}}, "planning.objective: expected one of throughput, delay, traffic, bal"),
        ({"checkpointing": {"interval_s": -1}}, "checkpointing.interval_s: expected a number ≥ 0 or none, got -1; de"),
        ({"checkpointing": {"interval_s": float("inf")}}, "checkpointing.interval_s: expected a number"),
        ({"checkpointing": {"guarantee": "twice"}}, "checkpointing.guarantee: expected one of any, exactly-once, got"),
        ({"telemetry": {"sample_tps": "some"}}, "telemetry.sample_tps: expected a number, all or none, got 'some'; d"),
        ({"recovery": {"silence_s": 1}}, "recovery.silence_s: expected a number ≥ lease_s (3), got 1; set both"),
        ({"limits": {"lines": -1}}, "limits.lines: expected a number ≥ 0, got -1"),
    ],
)
def test_rejects_an_invalid_value_with_its_path_and_a_remedy(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        RunConfig().changed(changes)
    assert str(error.value).startswith(problem)


def test_python_code_is_checked_likewise() -> None:
    with pytest.raises(InvalidInput, match="interval_s: expected a number ≥ 0 or none, got -1; default: 5 s"):
        Checkpointing(interval_s=-1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"checkpointing": {"intervall_s": 1}}, "checkpointing.intervall_s: unknown field; did you mean interval_s?"),
        ({"chekpointing": {}}, "chekpointing: unknown field; did you mean checkpointing?"),
    ],
)
def test_an_unknown_setting_suggests_the_nearest(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnknownName) as error:
        RunConfig().changed(changes)
    assert str(error.value) == problem


def test_changes_leave_all_else(tmp_path: Path) -> None:
    after = EVERYTHING.changed({"checkpointing": {"interval_s": "none"}, "execution": {"umask": "077"}})
    assert after.checkpointing == Checkpointing(interval_s=0.0, guarantee="exactly-once")
    assert {path for path in BY_PATH if value_of(after, path) != value_of(EVERYTHING, path)} == {
        "checkpointing.interval_s",
        "execution.umask",
    }


def test_changed_tuple_policies_go_over_those_in_force() -> None:
    before = RunConfig(tuple_policies=TuplePolicies(routing="potus", streams={"a->b": "random"}, sending="fifo"))
    after = before.changed({"tuple_policies": {"routing": "none", "streams": {"b->c": "shuffle"}}})
    assert after.tuple_policies == TuplePolicies(streams={"a->b": "random", "b->c": "shuffle"}, sending="fifo")


def test_a_resumed_run_keeps_what_cannot_change() -> None:
    refuse_fixed(EVERYTHING, EVERYTHING.changed({"execution": {"slots": 1}, "planning": {"policy": "heft"}}))
    with pytest.raises(InvalidInput) as error:
        refuse_fixed(EVERYTHING, EVERYTHING.changed({"execution": {"seed": 3}}))
    assert str(error.value) == "execution.seed: a resumed run keeps 7, got 3; leave it out, or start a new run"


def test_the_reference_lists_every_setting() -> None:
    text = reference()
    for path, each in BY_PATH.items():
        assert f"| `{path.rpartition('.')[2]}` |" in text
        assert each.setting.description in text
        assert each.setting.option in text
    assert text.count("## `[") == 9
    assert "| `interval_s` | number ≥ 0, none | 5 s |" in text
