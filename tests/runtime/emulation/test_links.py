import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.emulation import VirtualLink


def test_a_frame_takes_its_bits_over_the_bandwidth_and_then_the_latency() -> None:
    assert VirtualLink(bandwidth_mbps=8.0, latency_ms=5.0).transmit(1000, at=2.0) == pytest.approx(2.0 + 0.001 + 0.005)


def test_a_link_without_a_limit_only_delays() -> None:
    link = VirtualLink(bandwidth_mbps=None, latency_ms=5.0)
    assert [link.transmit(10**9, at=1.0) for _ in range(3)] == [pytest.approx(1.005)] * 3
    assert link.used(10.0) == 0.0


def test_a_saturated_link_transmits_at_its_bandwidth() -> None:
    link = VirtualLink(bandwidth_mbps=100.0, latency_ms=1.0)
    sizes = [100 + 7 * number % 1400 for number in range(10_000)]
    arrivals = [link.transmit(size, at=number * 1e-6) for number, size in enumerate(sizes)]
    bits = 8 * sum(sizes[1:])
    assert bits / (arrivals[-1] - arrivals[0]) == pytest.approx(100e6)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 10_000)), min_size=1))
def test_frames_arrive_in_order_and_never_sooner_than_alone(frames: list[tuple[float, int]]) -> None:
    link, alone = VirtualLink(10.0, 3.0), [VirtualLink(10.0, 3.0).transmit(size, at) for at, size in sorted(frames)]
    arrivals = [link.transmit(size, at) for at, size in sorted(frames)]
    assert arrivals == sorted(arrivals)
    assert all(arrival >= least for arrival, least in zip(arrivals, alone, strict=True))
    assert link.used(1e3) == pytest.approx(sum(8 * size / 10e6 for _, size in frames))


def test_use_up_to_now_leaves_out_what_is_still_to_be_sent() -> None:
    link = VirtualLink(bandwidth_mbps=8.0, latency_ms=50.0)
    link.transmit(1_000_000, at=0.0)
    link.transmit(1_000_000, at=0.5)
    assert [link.used(now) for now in (0.0, 0.25, 1.0, 1.5, 2.0, 9.0)] == pytest.approx([0.0, 0.25, 1.0, 1.5, 2.0, 2.0])
