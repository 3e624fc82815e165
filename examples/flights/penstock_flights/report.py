"""The report on the screen at the end."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock_flights.display import megabytes
from penstock_flights.verdict import VerdictLine

__all__ = ["print_findings", "print_hints", "print_totals"]


def print_findings(console: Console, findings: Sequence[VerdictLine]) -> None:
    """Prints a table of the subscribers' results, and a line for each difference."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("subscriber", "", "changes", "digest", "order", "once", "RESYNC", "time"):
        right = name in ("changes", "RESYNC", "time")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for finding in findings:
        place, wanted = finding.place, finding.wanted
        table.add_row(
            Text.assemble((wanted.title, "bold"), "\n", (wanted.wants, "grey50")),
            Text("got\nSpark", style="grey50"),
            Text.assemble(
                (f"{place.count:,}", _colour(finding.complete)), "\n", f"{finding.expected.count:,}"
            ),
            Text.assemble(
                (f"{place.ordered:x}", _colour(finding.equal)), "\n", f"{finding.expected.ordered:x}"
            ),
            _mark(finding.ordered),
            _mark(finding.once),
            Text(f"{place.resyncs}x", style="" if finding.lagged else "bold red"),
            f"{place.seconds:.1f} s",
            end_section=True,
        )
    console.print(table)
    if all(finding.holds for finding in findings):
        console.print(
            Text("Everybody got exactly what it wants, in order and once, with Spark's digest.", "bold green")
        )
    for finding in findings:
        for difference in finding.differences:
            console.print(Text(f"WRONG  {difference}", style="bold red"), soft_wrap=True)


def print_totals(
    console: Console, *, rows: int, seconds: float, started: float, nbytes: int, versions: int
) -> None:
    """Prints sizes and rates.

    Args:
        console: The console.
        rows: Changes that Spark committed since the start of the program.
        seconds: Seconds from the start of the query until the last subscriber had its last change.
        started: Seconds that Spark took to start.
        nbytes: Size of the log in bytes.
        versions: The number of versions of the log.
    """
    if rows:
        text = f"{rows:,} changes from Spark to the last subscriber in {seconds:.1f} s, {rows / max(seconds, 0.1):,.0f} a second"
    else:
        text = "Spark had nothing to add; everybody was served from the log"
    console.print(Text(f"{text}."))
    console.print(
        Text(
            f"The log keeps {versions} versions in {megabytes(nbytes)}. Spark took {started:.1f} s to start."
        )
    )


def print_hints(
    console: Console, *, log: Path, key: str | None, url: str | None, board: str | None = None
) -> None:
    """Prints commands and URLs to explore the log.

    Args:
        console: The console.
        log: The directory of the log.
        key: A key that is in the log.
        url: The URL of the server, if it keeps running.
        board: The URL of the departure board, if the server keeps running.
    """
    console.print()
    if board is not None:
        console.print(Text.assemble(("The departure board: ", "bold"), (board, "bold cyan")), soft_wrap=True)
        console.print(Text("It goes on with synthetic flights, a minute of theirs a second."))
        console.print()
    if url is not None:
        console.print(Text(f"Serving {url} until Ctrl-C. In another terminal:", style="bold"), soft_wrap=True)
        _command(console, f"penstock tail {url} --log {log.name} --since earliest --limit 3")
    else:
        console.print(Text("To look at it:", style="bold"))
    here = Path.cwd()
    place = shlex.quote(
        str(log.resolve().relative_to(here) if log.resolve().is_relative_to(here) else log.resolve())
    )
    _command(console, f"penstock tail {place} --since earliest --limit 3")
    if key is not None:
        _command(console, f"penstock tail {place} --since earliest --limit 2 --key {shlex.quote(key)}")


def _mark(holds: bool) -> Text:
    return Text("yes" if holds else "NO", style=_colour(holds))


def _colour(holds: bool) -> str:
    return "green" if holds else "bold red"


def _command(console: Console, text: str) -> None:
    console.print(Text(f"  {text}", style="cyan"), soft_wrap=True)
