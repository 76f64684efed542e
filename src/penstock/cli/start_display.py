"""The start of a run on the terminal: progress, notes and warnings."""

from pathlib import Path
from typing import Self

import typer
from rich.markup import escape

from penstock.api.dataflow import Dataflow
from penstock.cli.app_spec import promise
from penstock.cli.follower import Interrupts
from penstock.cli.output import console, errors
from penstock.cli.run_plans import Plans
from penstock.runtime.config import Changes
from penstock.runtime.run import Run
from penstock.startup.callbacks import StartCallbacks
from penstock.startup.resume import AlreadyCompleted
from penstock.startup.start import start


def start_run(flow: Dataflow, changes: Changes, plans: Plans, runs: Path, resume: Path | None, *, quiet: bool) -> Run:
    """Start the application and print its progress; Ctrl-C takes effect between two steps."""

    def progress(text: str) -> None:
        if interrupts.count:
            raise KeyboardInterrupt
        display.show_progress(text)

    try:
        with Interrupts() as interrupts, _StartDisplay(flow, quiet) as display:
            return start(
                flow,
                config=changes,
                plan=plans.first,
                policy=plans.policy,
                runs=runs,
                resume=resume,
                callbacks=StartCallbacks(progress=progress, notify=display.notify),
            )
    except AlreadyCompleted as completed:
        if not completed.published:
            raise
        console.print(str(completed), markup=False, soft_wrap=True)
        raise typer.Exit from None
    except KeyboardInterrupt:
        raise typer.Abort("stopped while it was starting") from None


class _StartDisplay:
    """Prints the delivery guarantee of the application, then the progress of the start."""

    def __init__(self, flow: Dataflow, quiet: bool) -> None:
        self._flow, self._quiet, self._terminal, self._shown = flow, quiet, errors, ""
        self._spinner = errors.status(f"starting {flow.name}")

    def __enter__(self) -> Self:
        if self._terminal.is_terminal and not self._quiet:
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._spinner.stop()

    def notify(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            style = "yellow" if text.startswith("warning: ") else None
            self._terminal.print(text, markup=False, soft_wrap=True, style=style)

    def show_progress(self, text: str) -> None:
        """Show the step that the start waits for."""
        if self._quiet or text == self._shown:
            return
        if not self._shown:  # no setting was rejected
            self.notify(promise(self._flow))
        self._shown = text
        if self._terminal.is_terminal:
            self._spinner.update(escape(text))
        else:
            self.notify(text)
