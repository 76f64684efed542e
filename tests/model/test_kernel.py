from penstock.model.kernel import interpreted, kernel, preparing


def double(value: float) -> float:
    return 2 * value


def test_the_time_that_kernels_take_to_be_ready_is_told_apart() -> None:
    compiled = kernel(double)
    with preparing() as first:
        assert compiled(1.5) == interpreted(compiled)(1.5) == 3.0
    with preparing() as second:
        compiled(2.5)
    assert first.seconds > 0
    assert second.seconds == 0
