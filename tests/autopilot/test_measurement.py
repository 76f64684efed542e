import pytest

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import Guard, Measurement, Stage

GUARD = Guard(readings=3, settling=4)
PLACED = {"a[0]": "m0/0"}


def reading(mean: float | None, epoch: int = 1, steady: bool = True) -> Reading:
    return Reading(at=0.0, seconds=1.0, mean_s=mean, epoch=epoch, steady=steady)


def after(*means: float | None, bound: float = 1.0) -> Measurement:
    found = Measurement(GUARD, bound, 1, PLACED)
    for mean in means:
        found.take(reading(mean), PLACED)
    return found


def test_counts_readings_once_two_in_a_row_are_near_each_other() -> None:
    found = after(0.9, 0.5, 0.52, 0.2, 0.3, 0.4)
    assert found.stage is Stage.COMPLETE
    assert [one.mean_s for one in found.readings] == [0.2, 0.3, 0.4]


def test_counts_readings_after_the_maximum_settling_time() -> None:
    found = after(0.1, 0.9, 0.1, 0.9, 0.3)
    assert found.stage is Stage.MEASURING
    assert len(found.readings) == 1


def test_ends_when_two_readings_in_a_row_are_beyond_the_bound() -> None:
    assert after(5.0, 1.1, 0.9, 1.1).stage in (Stage.SETTLING, Stage.MEASURING)
    found = after(0.5, 1.2, 1.4)
    assert found.stage is Stage.EXCEEDED
    assert found.mean_s == pytest.approx(1.3)


def test_the_first_reading_does_not_count_against_a_change() -> None:
    assert after(9.0, 9.0).stage is Stage.SETTLING
    assert after(9.0, 9.0, 9.0).stage is Stage.EXCEEDED


def test_no_completed_tuple_exceeds_any_bound() -> None:
    assert after(0.5, None, None).stage is Stage.EXCEEDED


def test_is_void_when_the_plant_fails_and_meddled_with_when_others_move_tasks() -> None:
    found = after(0.5, 0.5)
    assert found.take(reading(0.5, epoch=2), PLACED) is Stage.VOID
    assert after(0.5).take(reading(0.5, steady=False), PLACED) is Stage.VOID
    assert after(0.5).take(reading(0.5), {"a[0]": "m1/0"}) is Stage.INTERFERED
