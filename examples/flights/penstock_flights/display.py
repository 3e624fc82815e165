"""The screen output while the demo runs: a live picture on a terminal, else a line every few seconds."""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock_flights.progress import DemoProgress, ProgressRow

__all__ = ["Display", "LineDisplay", "LiveDisplay", "megabytes"]

_LINE_EVERY: Final = 2.0  # seconds
_WIDE: Final = 100
_MEGABYTE: Final = 1_000_000


class Display(Protocol):
    """Where the demo reports its progress."""

    def doing(self, text: str) -> None:
        """Reports that a step begins."""
        ...

    def done(self, text: str) -> None:
        """Reports that a step is done, or a finding."""
        ...

    def show(self, progress: DemoProgress) -> None:
        """Shows the present state; called many times a second."""
        ...

    def close(self) -> None:
        """Releases the screen. Idempotent."""
        ...


class LineDisplay:
    """Writes a line for each step, and one every two seconds while Spark streams."""

    def __init__(self, write: Callable[[str], object], *, clock: Callable[[], float] = monotonic) -> None:
        self._write = write
        self._clock = clock
        self._began = clock()
        self._printed_at: float | None = None

    def doing(self, text: str) -> None:
        """Writes a line."""
        self._line(f"{text} ...")

    def done(self, text: str) -> None:
        """Writes a line."""
        self._line(text)

    def show(self, progress: DemoProgress) -> None:
        """Writes a line if the last one is two seconds old."""
        now = self._clock()
        if self._printed_at is not None and now - self._printed_at < _LINE_EVERY:
            return
        self._printed_at = now
        done = 100 * progress.committed // max(1, progress.events)
        log = (
            f"{progress.doing}: {done:3} %, batch {progress.batch}/{progress.batches}, {progress.rate:,.0f}/s"
        )
        self._line(" | ".join([log, *map(_brief, progress.rows)]))

    def close(self) -> None:
        """Does nothing: lines need no cleanup."""

    def _line(self, text: str) -> None:
        self._write(f"{self._clock() - self._began:6.1f} s  {text}")


class LiveDisplay:
    """A picture that is drawn again eight times a second."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._console = console
        self._done: list[str] = []
        self._doing = ""
        self._closed = False
        self._spinner = Spinner("dots", style="cyan")
        self._progress: DemoProgress | None = None
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=8)
        self._live.start()

    def doing(self, text: str) -> None:
        """Shows the step beside a spinner."""
        self._doing = text

    def done(self, text: str) -> None:
        """Shows the step with a tick."""
        self._done.append(text)

    def show(self, progress: DemoProgress) -> None:
        """Stores the newest state, which the drawing thread draws."""
        self._progress, self._doing = progress, progress.doing

    def close(self) -> None:
        """Stops drawing; the last picture stays on the screen."""
        self._doing, self._closed = "", True
        self._live.stop()

    def _picture(self) -> RenderableType:
        progress = self._progress
        parts: list[RenderableType] = [self._head(), Rule(style="grey37")]
        parts += [Text.assemble((" ✓ ", "green"), (text, "grey70")) for text in self._done]
        if self._doing:
            self._spinner.update(text=Text(f"{self._doing} ...", style="cyan"))
            parts.append(Padding(self._spinner, (0, 0, 0, 1)))
        if progress is not None:
            parts += [Text(), self._flow(progress), Text(), self._subscribers(progress), Text()]
        if progress is not None and not self._closed:
            parts.append(Text(" Ctrl-C stops at any moment; started again, it goes on.", style="grey50"))
        return Group(*parts)

    def _head(self) -> RenderableType:
        seconds = int(self._clock() - self._began)
        head = Table.grid(expand=True)
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        progress = self._progress
        clock = "" if progress is None or progress.reached is None else f"{_readable(progress.reached)}   "
        head.add_row(
            Text.assemble(
                (" penstock ", "bold black on cyan"), ("  a year of flights from New York", "bold")
            ),
            Text.assemble((clock, "yellow"), (f"{seconds // 60:02}:{seconds % 60:02} ", "bold")),
        )
        return head

    def _flow(self, progress: DemoProgress) -> RenderableType:
        """Spark and the log."""
        sink = progress.sink
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True, min_width=7)
        grid.add_column(no_wrap=True, ratio=1)
        spark = Text.assemble((f"micro-batch {progress.batch}", "bold"), f" of {progress.batches}")
        if sink.batch_rows:
            spark.append(
                f"   gate {_milliseconds(sink.gate_seconds)}, encode {_milliseconds(sink.encode_seconds)},"
                f" commit {_milliseconds(sink.commit_seconds)}",
                style="grey70",
            )
        log = Text.assemble(
            (f"version {progress.batch}", "bold"),
            (f"   {megabytes(progress.nbytes)} on disk   ", "grey70"),
            (f"{progress.rate:,.0f} changes/s", "bold green" if progress.rate else "grey70"),
        )
        grid.add_row(Text(" Spark", style="bold cyan"), spark)
        grid.add_row(Text(" log", style="bold cyan"), log)
        grid.add_row(
            "",
            _bar(
                progress.committed, progress.events, f"{progress.committed:,} of {progress.events:,}", "cyan"
            ),
        )
        return grid

    def _subscribers(self, progress: DemoProgress) -> RenderableType:
        wide = self._console.width >= _WIDE
        table = Table(expand=True, box=None, padding=(0, 1), header_style="grey50")
        table.add_column("subscriber", no_wrap=True)
        if wide:
            table.add_column("wants", no_wrap=True)
        table.add_column("progress", ratio=1, min_width=8, no_wrap=True)
        for name in ("received", "per s", "behind", "demand"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True, min_width=9)
        for row in progress.rows:
            colour = "yellow" if row.state == "RESYNC" else "green"
            cells: list[RenderableType] = [Text(row.title, style="bold")]
            if wide:
                cells.append(Text(row.wants, style="grey70"))
            cells += [
                _way(row, progress, colour),
                f"{row.received:,}",
                f"{row.rate:,.0f}",
                Text(f"{row.behind:,}", style="yellow" if row.state == "RESYNC" else ""),
                f"{row.demand:,}",
                _state(row),
            ]
            table.add_row(*cells)
        return table


def megabytes(nbytes: int) -> str:
    """A size in readable form."""
    return f"{nbytes / _MEGABYTE:,.0f} MB"


def _bar(value: int, total: int, text: str, colour: str) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=max(1, total), completed=value, complete_style=colour, finished_style=colour)
    grid.add_row(bar, Text(text))
    return grid


def _way(row: ProgressRow, progress: DemoProgress, colour: str) -> RenderableType:
    return ProgressBar(
        total=max(1, progress.events), completed=row.reached, complete_style=colour, finished_style=colour
    )


def _state(row: ProgressRow) -> Text:
    if row.state is None:
        return Text("-", style="grey50")
    if row.state == "RESYNC":
        return Text.assemble(
            ("RESYNC", "bold yellow"), (f" {row.resyncs}x" if row.resyncs > 1 else "", "grey50")
        )
    return Text("LIVE", style="green")


def _brief(row: ProgressRow) -> str:
    behind = f", {row.behind:,} behind" if row.behind else ""
    return f"{row.title} {row.received:,}{behind}, {row.state or 'not yet'}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _readable(moment: str) -> str:
    """A time of the data in readable form."""
    try:
        at = datetime.fromisoformat(moment).astimezone(UTC)
    except ValueError:
        return moment
    return f"{at.day} {at:%B %Y, %H:%M} UTC"
