"""A plan on a terminal: machines as rows, slots as cells, in them the tasks, a colour per component.

With the load of a plan, free slots are counted, idle machines listed, and links or traffic drawn with their load.
Without it, only the used slots are known.
"""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from penstock.cli.colours import component_colours
from penstock.cli.drawing.canvas import clean, crop, wrapped
from penstock.cli.drawing.facts import expected_in_words, facts_in_words
from penstock.cli.drawing.network import in_columns
from penstock.cli.drawing.usage import draw_bars
from penstock.cli.formatting import bandwidth, percent, plural, policies_in_words, span
from penstock.cli.output import number
from penstock.cli.planned_load import PlannedLoad
from penstock.model.plan import Plan

FRAME = "bright_black"
SQUARES = 8  # free slots that are drawn
WIDEST_CELL = 40
ROUTES = 20  # listed, as are pairs of machines; more are counted

Cell = list[Text]


def draw_plan(plan: Plan, width: int, load: PlannedLoad | None = None) -> list[Text]:
    """Return the drawing, line by line, none wider than `width` cells."""
    title = Text(crop(f"{plan.application} on {plan.cluster}", width), style="bold")
    lines = [title, *wrapped([f"by {plan.policy}", f"for {plan.objective}", f"seed {plan.seed}"], width)]
    lines += [*(wrapped(policies, width) if (policies := policies_in_words(plan.tuples)) else []), Text()]
    lines += _grid(plan, width, load)
    if load is not None:
        used = tasks_by_slot(plan)
        lines += _network(load, [m.name for m in load.cluster.machines if m.name not in used], width)
    if plan.routes:
        lines += [Text(), *_routes(plan, width)]
    lines += [Text(), *wrapped(facts_in_words(plan), width)]
    lines += wrapped(expected_in_words(plan), width, style="bold")
    if load is None:
        return lines
    at = f"shares are at {number(load.rate_tps)} source tuples/s"
    return [*lines, *wrapped([f"bottleneck: {load.limit_in_words}"], width, style="bold red"), *wrapped([at], width)]


def tasks_by_slot(plan: Plan) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Return the numbers of the tasks by machine, slot and component; machines and slots in natural order."""
    found: dict[str, dict[str, dict[str, list[int]]]] = {}
    for component, slots in plan.tasks.items():
        for task, name in enumerate(slots):
            machine, _, slot = name.rpartition("/")
            found.setdefault(machine, {}).setdefault(slot, {}).setdefault(component, []).append(task)
    return {
        machine: dict(sorted(slots.items(), key=lambda item: _natural(item[0])))
        for machine, slots in sorted(found.items(), key=lambda item: _natural(item[0]))
    }


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that puts m2 before m10."""
    parts: list[str] = []
    for character in name:
        if parts and parts[-1].isdecimal() == character.isdecimal():
            parts[-1] += character
        else:
            parts.append(character)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def task_labels(component: str, numbers: Sequence[int], room: int) -> list[str]:
    """Return a component's tasks in one slot, `split[0,2-4]`, on as many lines of at most `room` cells as they take."""
    runs: list[list[int]] = []
    for task in numbers:
        if runs and task == runs[-1][-1] + 1:
            runs[-1].append(task)
        else:
            runs.append([task])
    shown = [text for run in runs for text in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    widest = max(len(text) for text in shown) + 2
    name = crop(component, max(room - widest, 1))
    lines: list[str] = []
    for text in shown:
        if lines and cell_len(f"{name}[{lines[-1]},{text}]") <= room:
            lines[-1] += f",{text}"
        else:
            lines.append(text)
    return [crop(f"{name}[{line}]", room) for line in lines]


def _grid(plan: Plan, width: int, load: PlannedLoad | None) -> list[Text]:
    colours = {name: f"black on {colour}" for name, colour in component_colours(plan.tasks).items()}
    machines = tasks_by_slot(plan)
    if not machines:
        return [Text("no tasks", style="dim")]
    number = max(cell_len(clean(slot)) for slots in machines.values() for slot in slots)
    room = max(min(WIDEST_CELL, width - 2) - number - 3, 1)
    filled = [tasks for slots in machines.values() for tasks in slots.values()]
    labels = [label for tasks in filled for item in tasks.items() for label in task_labels(*item, room)]
    inside = max(map(cell_len, labels)) + number + 3
    columns = min(max((width - 1) // (inside + 1), 1), max(len(slots) for slots in machines.values()))
    titles = {name: _title(name, slots, load) for name, slots in machines.items()}
    names = max(cell_len(crop(title, width - 6)) for title in titles.values())
    inside = max(inside, -(-(names + 4) // columns) - 1)  # the name stands in the upper edge
    lines: list[Text] = []
    for name, slots in machines.items():
        cells = [_cell(slot, tasks, colours, inside) for slot, tasks in slots.items()]
        for band in range(0, len(cells), columns):
            title = f" {crop(titles[name], columns * (inside + 1) - 4)} " if band == 0 else ""
            lines.append(_edge("├┼┤" if lines else "╭┬╮", title, inside, columns))
            lines += _band(cells[band : band + columns], inside, columns)
    return [*lines, _edge("╰┴╯", "", inside, columns)]


def _title(name: str, slots: Mapping[str, object], load: PlannedLoad | None) -> str:
    """Return the title of a machine: its name, load and free slots."""
    if load is None:
        return name
    free = load.cluster.machines[load.cluster.machine_index[name]].slots - len(slots)
    parts = [
        name,
        f"cpu {percent(load.share('machine', name))}",
        *([f"{'□' * min(free, SQUARES)} {free} free"] if free else []),
    ]
    return " · ".join([*parts, *(["bottleneck"] if load.limiting_machine == name else [])])


def _network(load: PlannedLoad, idle: Sequence[str], width: int) -> list[Text]:
    """Return the idle machines, and the links or the traffic between machines, with their load."""
    free = sum(load.cluster.machines[load.cluster.machine_index[name]].slots for name in idle)
    lines = wrapped([f"idle: {span(idle)}", plural(free, "free slot")], width, style="") if idle else []
    links = {link.label: bandwidth(link.bandwidth_mbps) for link in load.cluster.links}
    shares = {name: load.share("link", name) for name in links if ("link", name) in load.shares}
    if shares:
        bars = draw_bars({name: links[name] for name in shares}, shares, width)
        return [*lines, Text(), Text("links", style="dim"), *bars]
    busiest = sorted(load.traffic.items(), key=lambda item: -sum(item[1].values()))
    entries = [Text(f"  {a} ── {b}  {bandwidth(sum(by.values()))}") for (a, b), by in busiest[:ROUTES]]
    if not entries:
        return lines
    heading = Text(crop("traffic between machines, both directions together", width), style="dim")
    more = [Text(f"  … {len(busiest) - ROUTES} more", style="dim")] if len(busiest) > ROUTES else []
    return [*lines, Text(), heading, *in_columns(entries, width), *more]


def _edge(corners: str, title: str, inside: int, columns: int) -> Text:
    rule = corners[1].join("─" * inside for _ in range(columns))
    rest = rule[1 + cell_len(title) :] if title else rule[1:]
    return Text().append(f"{corners[0]}─", FRAME).append(title, "bold").append(rest + corners[2], FRAME)


def _cell(slot: str, tasks: Mapping[str, Sequence[int]], colours: Mapping[str, str], inside: int) -> Cell:
    """Return the lines of a cell: the slot's number, the tasks in it."""
    shown = clean(slot)
    lines: Cell = []
    for component, numbers in tasks.items():
        for label in task_labels(component, numbers, inside - cell_len(shown) - 3):
            lead = shown if not lines else " " * cell_len(shown)
            lines.append(Text(f" {lead} ").append(label, colours[component]))
    for line in lines:
        line.truncate(inside, overflow="ellipsis", pad=True)
    return lines


def _band(cells: Sequence[Cell], inside: int, columns: int) -> list[Text]:
    blank = Text(" " * inside)
    lines = []
    for height in range(max(len(cell) for cell in cells)):
        line = Text(no_wrap=True).append("│", FRAME)
        for column in range(columns):
            cell = cells[column] if column < len(cells) else []
            line.append_text(cell[height] if height < len(cell) else blank).append("│", FRAME)
        lines.append(line)
    return lines


def _routes(plan: Plan, width: int) -> list[Text]:
    lines = [Text("routes", style="dim")]
    for route in plan.routes[:ROUTES]:
        way = f"  {route.stream}: {route.source} to {route.target} over {', '.join(route.links)}"
        lines.append(Text(crop(way, width)))
    if len(plan.routes) > ROUTES:
        lines.append(Text(f"  … {len(plan.routes) - ROUTES} more", style="dim"))
    return lines
