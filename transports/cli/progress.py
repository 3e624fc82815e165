"""The progress of a command, on standard error."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from publishers.wal.checks import Progress
from transports.cli.source import logs_in

__all__ = ["each_log", "progress_bar"]

_T = TypeVar("_T")

_WIDTH: Final = 30


def each_log(directory: str, what: str, work: Callable[..., _T]) -> Iterator[_T]:
    """Runs work on each log of a directory and yields the results; a bar shows the progress."""
    for path in logs_in(directory):
        with progress_bar(f"{what} {path.name}") as progress:
            done = work(path, progress=progress)
        yield done


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """Shows a bar on standard error if that is a terminal; ``rich`` draws it if installed."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - it is optional
        from rich.progress import Progress as Rich  # noqa: PLC0415 - likewise
    except ImportError:
        yield _plain(title)
        print("\r" + " " * (len(title) + _WIDTH + 10) + "\r", end="", file=sys.stderr, flush=True)
        return
    bar: Any = Rich(console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain(title: str) -> Callable[[int, int], None]:
    def draw(done: int, total: int) -> None:
        part = done / total if total else 1.0
        drawn = "#" * round(part * _WIDTH)
        print(f"\r{title} [{drawn:<{_WIDTH}}] {part:4.0%}", end="", file=sys.stderr, flush=True)

    return draw
