"""TATA's estimator in plain Python with lists and loops, written directly from the paper: the baseline for ours."""

from dataclasses import dataclass

THRESHOLD = 0.01


@dataclass(frozen=True, slots=True)
class PlainCase:
    """A task graph and slots as lists."""

    cpu: list[float]
    down: list[list[int]]
    up: list[list[int]]
    slot_cpu: list[float]
    process: list[int]
    host: list[int]
    delay_ms: list[float]


def estimate(case: PlainCase, placed: list[int]) -> tuple[float, float]:
    """Return throughput and delay of one placement."""
    tasks = len(case.cpu)
    on_slot: list[list[int]] = [[] for _ in case.slot_cpu]
    for task, slot in enumerate(placed):
        on_slot[slot].append(task)
    limit, current = [0.0] * tasks, [0.0] * tasks
    at_sink = 0.0
    while True:
        for slot, members in enumerate(on_slot):
            free = case.slot_cpu[slot] - sum(current[task] * case.cpu[task] for task in members)
            need = sum(case.cpu[task] for task in members)
            for task in members:
                limit[task] = current[task] + free / need
        inflow = [0.0] * tasks
        for task in range(tasks):
            if case.up[task]:
                inflow[task] = sum(current[other] / len(case.down[other]) for other in case.up[task])
                current[task] = min(limit[task], inflow[task])
            else:
                current[task] = limit[task]
        rise, at_sink = current[-1] - at_sink, current[-1]
        back = [
            sum(current[other] * (current[task] / len(case.down[task])) / inflow[other] for other in case.down[task])
            for task in range(tasks - 1)
        ]
        current[:-1] = back
        if rise < THRESHOLD:
            break
    return at_sink, _delay(case, placed, current)


def _delay(case: PlainCase, placed: list[int], current: list[float]) -> float:
    delay = [0.0] * len(placed)
    for task, here in enumerate(placed):
        for other in case.down[task]:
            there = placed[other]
            if here == there:
                level = 0
            elif case.process[here] == case.process[there]:
                level = 1
            elif case.host[here] == case.host[there]:
                level = 2
            else:
                level = 3
            share = current[task] / len(case.down[task]) / current[other]
            delay[other] += share * (delay[task] + case.delay_ms[level])
    return delay[-1]
