"""``penstock top``: shows the state of a server, or of a log in a directory, until it is interrupted."""

import argparse
import contextlib
import http
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

from flow.clock import SYSTEM_CLOCK
from publishers.errors import InvalidOption, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.store.store import ChangeStore
from transports.cli.arguments import ArgumentParser
from transports.cli.http import ServerTrust, add_token, ask, token_of, trust_of
from transports.cli.output import print_json
from transports.cli.source import check_directory, is_store, url_of
from transports.cli.top_screen import Moment, digest, screen
from transports.server.statistics import statistics

__all__ = ["add_arguments", "run"]

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_LEAST: Final = 0.1
_MOST: Final = 3_600.0

Look = Callable[[], Moment]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Shows rates, lag, rings, connections and health, and the slowest subscriptions, until it is interrupted."
    parser.value("source", "DIR|URL", "directory of a log or store, or http://host:port/ of a server")
    parser.value("--interval", "SECONDS", "time between two looks (default: 1)", type=_interval, default=1.0)
    parser.flag("--once", "look twice, with the time of the interval between, and end")
    parser.json("one JSON document for each look, in a line")
    add_token(parser)


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST <= value <= _MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r:.60} is not a number of seconds from {_LEAST:g} to {_MOST:,.0f}"
        )
    return value


def run(chosen: argparse.Namespace) -> int:
    """Shows the state until SIGINT (exit code 130) or SIGTERM (0)."""
    with _looking(chosen) as look:
        before = look()  # reports an initial error at once
        stop, changed = threading.Event(), SimpleQueue[None]()
        with _signals(stop, changed), _display(chosen) as show:
            _watch(chosen, look, before, show, stop, changed)
    return 0


def _watch(
    chosen: argparse.Namespace,
    look: Look,
    before: Moment,
    show: "Callable[[Mapping[str, Any], str], None]",
    stop: threading.Event,
    changed: "SimpleQueue[None]",
) -> None:
    figures = digest(None, before)
    if not chosen.once:
        show(figures, "")
    problem, lost = "", 0.0
    while True:
        until = SYSTEM_CLOCK.monotonic() + chosen.interval
        while (left := until - SYSTEM_CLOCK.monotonic()) > 0 and not stop.is_set():
            with contextlib.suppress(Empty):
                # A queue, not an event: a signal handler that runs during the wait would block on the event's lock for ever.
                changed.get(timeout=min(left, 0.25))
                if not (stop.is_set() or chosen.once or chosen.json):
                    show(figures, problem)
        if stop.is_set():
            return
        try:
            now = look()
        except (PenstockError, OSError) as error:
            if chosen.once:
                raise
            lost = lost if problem else SYSTEM_CLOCK.monotonic()
            since, why = SYSTEM_CLOCK.monotonic() - lost, " ".join(str(error).split())
            problem = f"no answer for {since:.0f} s, the figures below are older: {why}"
            show(figures, problem)
            continue
        # A rate over a time without answers would apply to no moment.
        figures = digest(None if problem else before, now)
        before, problem = now, ""
        show(figures, problem)
        if chosen.once:
            return


@contextlib.contextmanager
def _signals(stop: threading.Event, changed: "SimpleQueue[None]") -> Iterator[None]:
    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        changed.put(None)

    def redraw(_signal: int, _frame: FrameType | None) -> None:
        changed.put(None)

    before = signal.signal(signal.SIGTERM, end), signal.signal(signal.SIGWINCH, redraw)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGWINCH, before[1])


@contextlib.contextmanager
def _display(chosen: argparse.Namespace) -> "Iterator[Callable[[Mapping[str, Any], str], None]]":
    """Selects the output: JSON, in place on a terminal, or one screen after another."""

    def as_json(figures: Mapping[str, Any], problem: str) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        print_json({"time": time, "source": chosen.source, **({"problem": problem} if problem else figures)})
        sys.stdout.flush()

    def lines_of(figures: Mapping[str, Any], problem: str, columns: int, rows: int | None) -> list[str]:
        state = problem or figures["status"] or ""
        return screen(
            f"penstock top  {chosen.source}  {datetime.now(UTC):%H:%M:%S}Z  {state}", figures, columns, rows
        )

    def below(figures: Mapping[str, Any], problem: str) -> None:
        print("\n".join([*lines_of(figures, problem, 10_000, None), ""]), flush=True)

    def in_place(figures: Mapping[str, Any], problem: str) -> None:
        columns, rows = shutil.get_terminal_size()
        lines = lines_of(figures, problem, columns, rows)
        sys.stdout.write("\x1b[H" + "\n".join(line + "\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()

    if chosen.json:
        yield as_json
    elif chosen.once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield below
    else:
        sys.stdout.write(_ENTER)
        try:
            yield in_place
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()


@contextlib.contextmanager
def _looking(chosen: argparse.Namespace) -> Iterator[Look]:
    """Provides the function that reads the figures of the source."""
    url = url_of(chosen.source)
    if url is not None:
        token, trust = token_of(chosen), trust_of(chosen, url)
        yield lambda: _asked(url, token, trust)
        return
    if chosen.token is not None or chosen.token_file is not None:
        raise InvalidOption("--token", "...", "left out for a directory, which asks for none")
    check_directory(chosen.source)
    with contextlib.ExitStack() as opened:
        logs: Mapping[str, ChangeLog]
        if is_store(chosen.source):
            store = opened.enter_context(ChangeStore.open(chosen.source, read_only=True))
            logs = {name: store.log(name) for name in store}
        else:
            log = opened.enter_context(ChangeLog.open(chosen.source, read_only=True))
            logs = {log.name: log}
        yield lambda: _looked(logs)


def _looked(logs: Mapping[str, ChangeLog]) -> Moment:
    health = {name: {"status": log.health().status.value} for name, log in logs.items()}
    return {**statistics(logs), "health": health, "at": SYSTEM_CLOCK.monotonic()}


def _asked(url: str, token: str | None, trust: ServerTrust | None) -> Moment:
    statistics = ask(url, "/statistics", "statistics", token, trust)
    if statistics is None or not isinstance(statistics.get("logs"), dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    # An unhealthy server answers with an error status and the same body.
    unhealthy = http.HTTPStatus.SERVICE_UNAVAILABLE.value
    health = ask(url, "/health", "health", token, trust, also=unhealthy) or {}
    at = SYSTEM_CLOCK.monotonic()
    return {**statistics, "status": health.get("status"), "health": health.get("logs", {}), "at": at}
