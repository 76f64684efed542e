import dataclasses
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from penstock.model.errors import InvalidInput, UnknownName, nearest, shown
from penstock.model.spec import build


@dataclasses.dataclass(frozen=True)
class Thing:
    size: Annotated[int, Meta(ge=1)]
    speed: float = 1.0
    limit: float | None = 5.0
    shape: Literal["round", "flat"] = "round"
    exact: bool = False

    def __post_init__(self) -> None:
        if self.speed > 100:
            raise InvalidInput("speed", f"expected ≤ 100, got {self.speed}")


def test_converts_every_value_to_the_parameters_type() -> None:
    thing = build("thing", Thing, "size=3,speed=2,limit=none,shape=flat,exact=true")
    assert thing == Thing(size=3, speed=2.0, limit=None, shape="flat", exact=True)
    assert isinstance(thing.speed, float)


def test_settings_override_the_preset_and_the_preset_overrides_defaults() -> None:
    assert build("thing", Thing, "speed=4", {"size": 2, "speed": 3.0}) == Thing(size=2, speed=4.0)


def test_calls_functions_too() -> None:
    def double(number: int = 4) -> int:
        return 2 * number

    assert build("double", double, "") == 8
    assert build("double", double, "number=6") == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "thing.size: missing; add size=VALUE"),
        ("size=0", "thing.size: expected a whole number ≥ 1, got '0'"),
        ("size=many", "thing.size: expected a whole number, got 'many'"),
        ("size=1,limit=x", "thing.limit: expected a number, got 'x'"),
        ("size=1,shape=odd", "thing.shape: expected one of flat, round, got 'odd'"),
        ("size=1,size=2", "thing.size: given twice, again as '2'; remove one"),
        ("size", "thing.size: expected size=VALUE, got 'size'"),
        ("size=1,speed=101", "thing.speed: expected ≤ 100, got 101.0"),
    ],
)
def test_rejects_a_setting_with_its_path(settings: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        build("thing", Thing, settings)
    assert str(refused.value) == message


def test_an_unknown_parameter_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="no parameter is named 'colour'; there are exact, limit, shape, size, speed"):
        build("thing", Thing, "colour=red")


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(UnknownName, match=r"no parameter is named 'sise'; did you mean size\?"):
        build("thing", Thing, "sise=3")
    assert nearest("R-Strom", ["r-storm", "t-storm", "heft"]) == "did you mean r-storm or t-storm?"
    assert nearest("x", ["b", "a"]) == "there are a, b"


def test_shows_values_in_a_limited_length() -> None:
    assert len(shown("x" * 1000)) == 200
    assert shown("short") == "'short'"
