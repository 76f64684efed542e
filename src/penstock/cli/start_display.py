"""The beginning of `penstock run`: the application is started, and whoever waits is told for what."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from penstock.api.dataflow import Dataflow
    from penstock.runtime.run import Run


def begin(flow: "Dataflow", settings: dict[str, Any], quiet: bool) -> "Run":
    """Start the application, saying meanwhile what is being waited for; Ctrl-C is heeded between two steps of it."""
    from penstock.cli.follower import Interrupts
    from penstock.cli.output import console
    from penstock.startup.resume import AtItsEnd
    from penstock.startup.start import start

    def progress(text: str) -> None:
        if interrupts.count:
            raise KeyboardInterrupt
        beginning.wait(text)

    try:
        with Interrupts() as interrupts, _Beginning(flow, quiet) as beginning:
            return start(flow, progress=progress, tell=beginning.tell, **settings)
    except AtItsEnd as end:
        if not end.published:
            raise
        console.print(str(end), markup=False, soft_wrap=True)
        raise typer.Exit from None
    except KeyboardInterrupt:
        raise typer.Abort("stopped while it was starting") from None


class _Beginning:
    """Says what is being waited for while a run starts, and before that what the application promises."""

    def __init__(self, flow: "Dataflow", quiet: bool) -> None:
        from penstock.cli.output import errors

        self._flow, self._quiet, self._terminal, self._said = flow, quiet, errors, ""
        self._spinner = errors.status(f"starting {flow.name}")

    def __enter__(self) -> "_Beginning":
        if self._terminal.is_terminal and not self._quiet:
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._spinner.stop()

    def tell(self, text: str) -> None:
        """Say something that is to stay."""
        if not self._quiet:
            style = "yellow" if text.startswith("warning: ") else None
            self._terminal.print(text, markup=False, soft_wrap=True, style=style)

    def wait(self, text: str) -> None:
        """Say what is waited for."""
        from rich.markup import escape

        from penstock.cli.app_spec import promise

        if self._quiet or text == self._said:
            return
        if not self._said:  # nothing was refused
            self.tell(promise(self._flow))
        self._said = text
        if self._terminal.is_terminal:
            self._spinner.update(escape(text))
        else:
            self.tell(text)
