"""`penstock sim scaling`."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.policies.registry import PolicyKind, names
from tests.conftest import Ran

Penstock = Callable[..., Ran]
APP = """
name = "clicks"
[[components]]
name = "clicks"
kind = "source"
cpu = 0.0002
[[components]]
name = "enrich"
cpu = 0.01
[[components]]
name = "store"
kind = "sink"
cpu = 0.002
[[streams]]
source = "clicks"
target = "enrich"
[[streams]]
source = "enrich"
target = "store"
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[object, ...]:
    """Return the command for a trace of 40 intervals of five minutes, of which 16 are known, 30 times as fast."""
    (tmp_path / "clicks.toml").write_text(APP)
    machines = "".join(f'[[machines]]\nname = "m{n}"\ncores = 2\nslots = 2\n' for n in range(4))
    (tmp_path / "four.toml").write_text(f'name = "four"\n{machines}')
    wave = 900 + 700 * np.sin(np.arange(40) / 4)
    rows = [f"2026-01-01 {n // 12:02}:{n % 12 * 5:02}:00,{int(count)}" for n, count in enumerate(wave)]
    (tmp_path / "day.csv").write_text("\n".join(["timestamp,value", *rows]) + "\n")
    trace = f"{tmp_path / 'day.csv'}:speed=30,rate=150"
    files = (tmp_path / "clicks.toml", tmp_path / "four.toml", trace)
    return ("sim", "scaling", *files, "--known", 16, "--intervals", 24, "--late", 1, "--pause", 0.5)


@pytest.mark.slow
def test_compares_all_policies_and_fixed_sizes_and_draws_them(
    penstock: Penstock, command: tuple[object, ...], tmp_path: Path
) -> None:
    ran = penstock(*command, "--plot", tmp_path / "scaling.svg")
    assert ran.code == 0, ran.err
    for name in names(PolicyKind.SCALING):
        assert name in ran.out
    assert "24 intervals of 10 s" in ran.out
    assert "30 times as fast as recorded; late: after 1 s; a rescale takes 500 ms" in ran.out
    assert (tmp_path / "scaling.svg").stat().st_size > 10_000


@pytest.mark.slow
def test_answers_programs_with_every_interval(penstock: Penstock, command: tuple[object, ...]) -> None:
    answer = json.loads(penstock(*command, "--scaling", "ds2", "--json").out)
    first, *fixed = answer["outcomes"]
    assert (answer["speed"], answer["interval_s"], first["policy"]) == (30.0, 10.0, "ds2")
    assert len(first["intervals"]) == 24
    assert sum(interval["offered"] for interval in first["intervals"]) == first["offered"]
    machines = sum(interval["machines"] for interval in first["intervals"])
    assert first["machine_hours"] == pytest.approx(machines * 5 / 60)
    assert first["rescales"] == sum(bool(interval["rescale"]) for interval in first["intervals"]) > 0
    assert all(one["policy"].startswith("fixed on ") for one in fixed)
    assert any(one["on_front"] for one in answer["outcomes"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--scaling", "ds3"), "scaling: no scaling policy is named 'ds3'; did you mean ds2"),
        (("--scaling", "ds2:target=1"), "scaling.ds2: no parameter is named 'target'"),
        (("--policy", "magic"), "policy: no policy is named 'magic'"),
        (("--pause", "20"), "pause: expected 0 to less than an interval of 10 s, got 20"),
        (("--late", "0"), "late: expected a number of seconds > 0, got 0"),
        (("--plot", "picture.txt"), "picture.txt: expected a name that ends in .png"),
    ],
)
def test_wrong_options_are_one_line(
    penstock: Penstock, command: tuple[object, ...], options: tuple[str, ...], problem: str
) -> None:
    ran = penstock(*command, *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert problem in ran.err


def test_a_process_needs_the_length_of_an_interval(penstock: Penstock) -> None:
    ran = penstock("sim", "scaling", "word-count", "li-10", "poisson:rate=10")
    assert ran.err == "error: interval: expected a number of seconds for what is no recording; add --interval\n"
