import random

import pytest

from penstock.runtime.worker.token_bucket import TokenBucket


def test_starts_empty_and_gets_tokens_at_the_rate() -> None:
    bucket = TokenBucket(4.0, 100.0)
    assert bucket.available(100.0) == 0
    assert bucket.next_token == 100.25
    assert bucket.available(100.24) == 0
    assert bucket.available(100.25) == 1
    assert bucket.take(1, 100.25) == [100.25]
    assert bucket.next_token == 100.5


def test_keeps_the_tokens_of_fifty_milliseconds_and_always_one() -> None:
    assert TokenBucket(1000.0, 0.0).available(60.0) == 50
    assert TokenBucket(2.0, 0.0).available(60.0) == 1


def test_reports_the_arrival_of_each_token_even_if_it_is_taken_late() -> None:
    bucket = TokenBucket(1000.0, 1.0)
    assert bucket.take(3, 1.0055) == pytest.approx([1.001, 1.002, 1.003])
    assert bucket.available(1.0055) == 2
    assert bucket.take(2, 1.0055) == pytest.approx([1.004, 1.005])


@pytest.mark.parametrize("rate", [0.3, 7.0, 999.0, 12345.6])
def test_provides_the_rate_over_any_time_and_from_any_clock_value(rate: float) -> None:
    for start in (0.0, 1e3, 4e6):
        bucket, now, given = TokenBucket(rate, start), start, 0
        rng = random.Random(int(rate))
        while given < 2000:
            now = bucket.next_token
            there = bucket.available(now)
            assert there >= 1, "it is woken up for nothing"
            given += there
            bucket.take(there, now)
            if rng.random() < 0.1:
                now += min(0.04, 0.9 / rate)
        assert given / (now - start) == pytest.approx(rate, rel=0.002)


def test_taking_too_many_is_paid_back_later() -> None:
    bucket = TokenBucket(10.0, 0.0)
    bucket.take(3, 0.1)
    assert bucket.next_token == pytest.approx(0.4)


def test_another_rate_counts_from_when_it_changes() -> None:
    bucket = TokenBucket(100.0, 0.0)
    assert bucket.available(10.0) == 5
    bucket.set_rate(10.0, 10.0)
    assert bucket.available(10.0) == 1, "more would be a burst that the new rate has not"
    bucket.take(1, 10.0)
    assert bucket.next_token == pytest.approx(10.1)
    bucket.set_rate(0.0, 10.05)
    assert bucket.available(1e6) == 0
    bucket.set_rate(10.0, 20.0)
    assert bucket.next_token == pytest.approx(20.1), "tokens from before the pause have expired"
