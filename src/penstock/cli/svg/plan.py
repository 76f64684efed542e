"""A plan as SVG: machines as rows, slots as cells, in them the tasks, a colour a component."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from penstock.cli.drawing.facts import expected_in_words, facts_in_words
from penstock.cli.drawing.plan import task_labels, tasks_by_slot
from penstock.cli.svg.elements import FAINT, INK, MARGIN, MUTED, PAPER, Page, shortened, widest
from penstock.model.plan import Plan

COLOURS = (  # light enough for dark text
    "#b9d7f1",
    "#c4e8c9",
    "#f7cfe3",
    "#ffe2a8",
    "#d9cdf2",
    "#f8c9bd",
    "#bfe7e6",
    "#e3e3b5",
    "#d8d8d8",
    "#ffd0a1",
    "#cfe0a8",
    "#e6c5e8",
)
PAGE_WIDTH = 1080
NAME_WIDTH, LABEL_WIDTH = 180, 200
CHIP, GAP = 18, 3
CHIPS = 24  # of one component in a slot; more tasks share chips
LABEL_CELLS = 20
PADDING = 10
SLOT_LABEL = 14


def plan_svg(plan: Plan) -> bytes:
    """Return the drawing of a plan as an SVG file."""
    title = f"{plan.application} on {plan.cluster}"
    page = Page(title)
    page.text(MARGIN, 34, title, points=18, bold=True)
    made_by = [f"by {plan.policy}", f"for {plan.objective}", f"seed {plan.seed}"]
    y = page.facts(56, [*made_by, *facts_in_words(plan)])
    y = page.facts(y, expected_in_words(plan)) + 6
    machines = tasks_by_slot(plan)
    labels = [f"{component}[{len(slots) - 1}]" for component, slots in plan.tasks.items()]
    cell = min(widest(labels, 11), LABEL_WIDTH) + 2 * PADDING + 2 * GAP
    names = min(widest(list(machines), 12, bold=True), NAME_WIDTH) + 2 * PADDING
    colours = dict(zip(plan.tasks, COLOURS * (len(plan.tasks) // len(COLOURS) + 1), strict=False))
    for name, slots in machines.items():
        y = _draw_machine(page, name, slots, y, (names, cell), colours)
    return page.finish()


def _draw_machine(
    page: Page,
    name: str,
    slots: Mapping[str, Mapping[str, list[int]]],
    top: float,
    widths: tuple[float, float],
    colours: Mapping[str, str],
) -> float:
    """Put a machine's row on the page; return where the next begins."""
    names, cell = widths
    abreast = max(int((PAGE_WIDTH - names - PADDING) // (cell + GAP)), 1)
    bands = [list(slots.items())[start : start + abreast] for start in range(0, len(slots), abreast)]
    heights = [SLOT_LABEL + max(_chips(tasks) for _, tasks in band) * (CHIP + GAP) + GAP for band in bands]
    height = sum(heights) + GAP * len(bands) + 2 * PADDING
    width = names + PADDING + min(len(slots), abreast) * (cell + GAP)
    page.rectangle(MARGIN, top, width, height, fill="#f5f7fa", stroke=FAINT, tip=f"machine {name}", kind="machine")
    page.text(MARGIN + PADDING, top + 26, shortened(name, 12, names - PADDING, bold=True), bold=True, colour=INK)
    y = top + PADDING
    for band, band_height in zip(bands, heights, strict=True):
        for column, (slot, tasks) in enumerate(band):
            x = MARGIN + names + column * (cell + GAP)
            page.rectangle(x, y, cell, band_height, fill=PAPER, stroke=FAINT, tip=f"slot {name}/{slot}", kind="slot")
            page.text(x + GAP + 2, y + 11, slot, points=9, colour=MUTED)
            _draw_tasks(page, tasks, x + GAP, y + SLOT_LABEL, cell - 2 * GAP, colours)
        y += band_height + GAP
    return top + height + PADDING


def _labels(component: str, numbers: Sequence[int]) -> list[str]:
    """Return the labels of a component's tasks in one slot: one a task, few for many."""
    if len(numbers) > CHIPS:
        return task_labels(component, numbers, max(cell_len(component), LABEL_CELLS) + LABEL_CELLS)
    return [f"{component}[{number}]" for number in numbers]


def _chips(tasks: Mapping[str, list[int]]) -> int:
    return sum(len(_labels(*item)) for item in tasks.items())


def _draw_tasks(
    page: Page, tasks: Mapping[str, list[int]], x: float, y: float, width: float, colours: Mapping[str, str]
) -> None:
    for component, numbers in tasks.items():
        for task in _labels(component, numbers):
            page.rectangle(x, y, width, CHIP, fill=colours[component], round_by=4, tip=task, kind="task")
            page.text(x + 6, y + 13, shortened(task, 11, width - 8), points=11, colour=INK)
            y += CHIP + GAP
