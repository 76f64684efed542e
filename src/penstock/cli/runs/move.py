"""`penstock runs move`: move one task of a running application."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.inputs import JsonOption, RunOption, RunsOption
from penstock.cli.output import console, duration, print_json
from penstock.cli.runs.waiting import showing_checkpoint
from penstock.model.errors import UnknownMachine, UnknownName, nearest
from penstock.model.status import Status
from penstock.runtime.control_socket import GetStatus, MoveTask, ask
from penstock.runtime.storage.run_folder import find_running


def move(
    task: Annotated[str, typer.Argument(help="The task, component[number]; quote it for your shell.")],
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE|SLOT", help="The target: a machine, or a slot as machine/number.")
    ],
    run: RunOption = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Move one task of a running application to another machine or slot.

    On a machine it takes the slot with the fewest tasks. Its state moves with it, nothing is lost, and the order of
    tuples is kept; they wait for as long as is printed.

    Example: penstock runs move 'split[2]' m3
    """
    info = find_running(run, runs)
    now = ask(info, GetStatus())
    slot = target_slot(now, task, machine)
    if now.placement[task] == slot:
        if as_json:
            print_json([])
        else:
            console.print(f"{task} is on {slot} already", markup=False)
        return
    with showing_checkpoint(info, f"moving {task}"):
        (outcome,) = ask(info, MoveTask(task, slot), timeout=None)
    if as_json:
        print_json([outcome])
    else:
        held = f"its tuples were held up for {duration(outcome.seconds)}"
        console.print(f"moved {outcome.task} from {outcome.before} to {outcome.after}; {held}", markup=False)


def target_slot(status: Status, task: str, where: str) -> str:
    """Return the slot that a user means: a slot's name, or the one with the fewest tasks on a machine.

    A task that is on the machine already stays in its slot.
    """
    if task not in status.placement:
        raise UnknownName("task", f"no task is named {task!r}; {nearest(task, status.placement)}")
    slots = slots_by_machine(status)
    known = [slot for each in slots.values() for slot in each]
    if where in known:
        return where
    if where not in slots:
        raise UnknownMachine("machine", f"none is named {where!r}; {nearest(where, slots)}")
    if status.placement[task] in slots[where]:
        return status.placement[task]
    load = dict.fromkeys(slots[where], 0)
    for other, slot in status.placement.items():
        if slot in load and other != task:
            load[slot] += 1
    return min(load, key=lambda slot: load[slot])


def slots_by_machine(status: Status) -> dict[str, list[str]]:
    """Return the slots of each machine: the slots that it reports, and those with tasks."""
    found: dict[str, dict[str, None]] = {}
    for machine in status.machines:
        for slot in machine.slots or ((machine.name,) if "/" in machine.name else (f"{machine.name}/0",)):
            found.setdefault(slot.partition("/")[0], {})[slot] = None
    for slot in status.placement.values():
        found.setdefault(slot.partition("/")[0], {})[slot] = None
    return {machine: list(slots) for machine, slots in found.items()}
