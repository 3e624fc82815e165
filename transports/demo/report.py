"""What stays on the screen at the end."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transports.demo.display import megabytes
from transports.demo.verdict import Finding

__all__ = ["print_findings", "print_hints", "print_totals"]


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """The table of what everybody got, and a line for everything that is not as it must be."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    table.add_column("subscriber", no_wrap=True)
    table.add_column("wants", no_wrap=True)
    for name in ("Spark counts", "received"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("in order", "once", "digest", "RESYNC"):
        table.add_column(name, no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for finding in findings:
        place = finding.place
        table.add_row(
            Text(finding.wanted.title, style="bold"),
            finding.wanted.wants,
            f"{finding.expected.count:,}",
            f"{place.count:,}",
            _mark(finding.ordered),
            _mark(finding.once),
            Text.assemble(_mark(finding.equal), f" {place.ordered:x}"),
            f"{place.resyncs}x",
            f"{place.seconds:.1f} s",
        )
    console.print()
    console.print(table)
    for finding in findings:
        for difference in finding.differences:
            console.print(Text(f"WRONG  {difference}", style="bold red"), soft_wrap=True)


def print_totals(
    console: Console, *, rows: int, seconds: float, started: float, nbytes: int, batches: int
) -> None:
    """How much and how fast.

    Args:
        console: Where.
        rows: Changes that Spark brought since the program was started.
        seconds: From the first look to the last subscriber's last change and the verdict.
        started: How long Spark took to start.
        nbytes: Size of the log.
        batches: Micro-batches of the run.
    """
    text = f"{rows:,} changes from Spark to the last subscriber and compared in {seconds:.1f} s"
    if rows:
        text += f": {rows / seconds:,.0f} a second"
    text += f"; the log keeps {batches} versions in {megabytes(nbytes)}; Spark took {started:.1f} s to start."
    console.print(Text(text), soft_wrap=True)


def print_hints(console: Console, *, log: Path, key: str | None, url: str | None) -> None:
    """How to look at what is there.

    Args:
        console: Where.
        log: The log's directory.
        key: A key that is in the log.
        url: Of the server, if it goes on.
    """
    console.print()
    if url is not None:
        console.print(Text(f"Serving {url} until Ctrl-C. In another terminal:", style="bold"), soft_wrap=True)
        _command(console, f"penstock tail {url} --since earliest --limit 3")
    else:
        console.print(Text("To look at it:", style="bold"))
    place = shlex.quote(os.path.relpath(log))
    _command(console, f"penstock tail {place} --since earliest --limit 3")
    if key is not None:
        _command(console, f"penstock tail {place} --since earliest --limit 2 --key {shlex.quote(key)}")


def _mark(holds: bool) -> Text:
    return Text("yes", style="green") if holds else Text("NO", style="bold red")


def _command(console: Console, text: str) -> None:
    console.print(Text(f"  {text}", style="cyan"), soft_wrap=True)
