"""The flights, carried to all targets at once: one is stopped and started again in the middle, and one is killed.

    make sinks-demo [ARGS='--rows 5000 --targets postgresql,kafka']

At the end each target must hold what the log says. The servers are those of others, unmodified; one that is not installed is left
out, and named in a line.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from penstock_flights.flights import KEY_COLUMNS, flight_events
from publishers import ChangeLog, Criterion, upsert
from tests.harness.missing import PREFIX
from tests.servers.carrier import folded, target, told
from tests.servers.targets import TARGETS, TargetServer
from transports.sinks import LogSinks, RetryPolicy, SinkOptions, SinkRunner

__all__ = ["main"]

_FLIGHTS: Final = "flight"
_COMMIT: Final = 50  # changes a transaction
_EVERY: Final = 2.0  # seconds between two lines of progress
_PATIENCE: Final = 600.0
_PAUSE: Final = threading.Event()
_ALL: Final = ("webhook", "kafka exactly once", "search", "postgresql", "redis", "files")
# Whom what happens in the middle befalls: the first of these that is there.
_STOPPED: Final = ("postgresql", "redis", "webhook")
_KILLED: Final = ("kafka exactly once", "search", "redis", "webhook")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass
class _Blow:
    """What befalls a target.

    Attributes:
        name: The target.
        how: What is done to it.
        begin: After how many changes of all.
        end: After how many it is started again.
    """

    name: str
    how: str
    begin: int
    end: int


class _Demo:
    """One run.

    Args:
        folder: For all of it.
        rows: How many events of flights.
        names: To which targets.
    """

    def __init__(self, folder: Path, rows: int, names: Sequence[str]) -> None:
        self._folder, self._rows, self._names = folder, rows, names
        self._began = monotonic()
        self._shown = 0.0
        self.missing: list[str] = []

    def run(self) -> bool:
        """Answers whether each target holds what the log says."""
        with contextlib.ExitStack() as stack:
            servers = {name: made for name in self._names if (made := self._started(name)) is not None}
            for one in servers.values():
                stack.callback(one.close)
            self._line("the flights are prepared")
            rows = flight_events(self._rows).to_pylist()
            self._line(f"{len(rows):,} changes follow")
            log = stack.enter_context(ChangeLog.open(self._folder / "log"))
            sinks = stack.enter_context(LogSinks(log))
            runners = {name: self._added(sinks, name, one) for name, one in servers.items()}
            self._feed(log, rows, servers, runners)
            self._drain(log, runners)
            seconds = monotonic() - self._began
            sinks.close()
            return self._table(log, servers, runners, seconds)

    def _line(self, text: str) -> None:
        _say(f"{monotonic() - self._began:6.1f} s  {text}")

    def _started(self, name: str) -> TargetServer | None:
        self._line(f"{name} starts")
        try:
            made = TARGETS[name](self._folder / name.replace(" ", "-"))
        except pytest.skip.Exception as error:
            self.missing.append(f"{name} was left out, as there is no {str(error).removeprefix(PREFIX)}")
            return None
        made.kinds = (_FLIGHTS,)
        return made

    def _added(self, sinks: LogSinks, name: str, server: TargetServer) -> SinkRunner:
        options = SinkOptions(
            criteria=Criterion(
                entity_types={_FLIGHTS}
            ),  # else the counts have the events of transactions in them
            since="earliest",
            batch_changes=500,
            linger=0.05,
            retry=RetryPolicy(first=0.2, limit=1.0),
        )
        return sinks.add(name.replace(" ", "-"), target(server.address("demo")), options)

    # What happens.

    def _blows(self, servers: dict[str, TargetServer]) -> list[_Blow]:
        size, made = self._rows, []
        for candidates, how, begin, end in (
            (_STOPPED, "stopped", size // 4, size // 2),
            (_KILLED, "killed", size // 2, 3 * size // 4),
        ):
            taken = [one.name for one in made]
            there = [one for one in candidates if one in servers]
            name = next((one for one in there if one not in taken), next(iter(there), None))
            if name is not None:
                made.append(_Blow(name, how, begin, end))
        return made

    def _feed(
        self,
        log: ChangeLog,
        rows: list[dict[str, Any]],
        servers: dict[str, TargetServer],
        runners: dict[str, SinkRunner],
    ) -> None:
        blows = self._blows(servers)
        for start in range(0, len(rows), _COMMIT):
            for blow in blows:
                program = servers[blow.name].program
                assert program is not None
                if blow.begin <= start < blow.begin + _COMMIT:
                    self._wait(runners[blow.name], blow.name)  # so that it has had something
                    self._line(f"{blow.name} is {blow.how}")
                    program.stop() if blow.how == "stopped" else program.kill()
                elif blow.end <= start < blow.end + _COMMIT:
                    self._line(f"{blow.name} is started again, {_told(runners[blow.name])}")
                    program.start()
            log.commit([_change(row) for row in rows[start : start + _COMMIT]])
            self._progress(runners)
        self._line(f"{len(rows):,} changes are in the log")

    def _wait(self, runner: SinkRunner, name: str) -> None:
        end = monotonic() + _PATIENCE
        while not runner.counters.changes:
            assert monotonic() < end, f"nothing came to {name}: {runner.statistics()}"
            _PAUSE.wait(0.05)

    def _drain(self, log: ChangeLog, runners: dict[str, SinkRunner]) -> None:
        end = monotonic() + _PATIENCE
        while (late := [one for one in runners.values() if _lag(one)]) and monotonic() < end:
            if all(one.state.name in ("PAUSED", "LOST", "STOPPED") for one in late):
                return
            self._progress(runners)
            _PAUSE.wait(0.1)

    def _progress(self, runners: dict[str, SinkRunner]) -> None:
        if monotonic() - self._shown >= _EVERY:
            self._shown = monotonic()
            self._line(", ".join(f"{name} {_told(one)}" for name, one in runners.items()))

    # What came of it.

    def _table(
        self,
        log: ChangeLog,
        servers: dict[str, TargetServer],
        runners: dict[str, SinkRunner],
        seconds: float,
    ) -> bool:
        state, sent = folded(log), told(log)
        expected = {one: json.loads(body) for one, body in state.items()}
        lines = [("the log", f"{len(sent):,}", f"{len(expected):,}", _digest(expected), "")]
        equal = True
        for name, server in servers.items():
            held = server.held("demo")
            came = [place for stream in server.streams("demo") for place in stream]
            right = held == expected and (not came or set(came) == set(sent))
            right = right and not (server.once and len(came) != len(sent))
            equal = equal and right
            failures = runners[name].counters.failures
            verdict = ("equal" if right else "DIFFERENT") + (
                f", {failures} attempts failed" if failures else ""
            )
            lines.append((name, f"{len(came):,}" if came else "-", f"{len(held):,}", _digest(held), verdict))
        _say("")
        _say(f"{'':<20}{'changes':>12}{'entities':>12}  {'digest of what it holds':<26}")
        for title, changes, entities, digest, verdict in lines:
            _say(f"{title:<20}{changes:>12}{entities:>12}  {digest:<26}{verdict}")
        _say("")
        _say(
            f"{len(sent):,} changes to {len(servers)} targets in {seconds:.0f} s, with their starts and stops"
        )
        return equal


def _change(row: dict[str, Any]) -> Any:
    body = {name: value if isinstance(value, int | None) else str(value) for name, value in row.items()}
    return upsert(_FLIGHTS, "-".join(str(row[name]) for name in KEY_COLUMNS), body)


def _lag(runner: SinkRunner) -> int:
    lag = runner.statistics().lag
    return 1 if lag is None else lag.versions


def _told(runner: SinkRunner) -> str:
    at = f"{runner.counters.changes:,}"
    return at if runner.state.name == "STREAMING" else f"{at} {runner.state.name}"


def _digest(state: dict[tuple[str, str], Any]) -> str:
    made = hashlib.sha256()
    for one in sorted(state):
        made.update(json.dumps([*one, state[one]], sort_keys=True).encode())
    return made.hexdigest()[:16]


def _names(text: str) -> list[str]:
    names = [one.strip() for one in text.split(",")]
    for one in names:
        if one not in TARGETS:
            raise argparse.ArgumentTypeError(f"there is no target {one!r}, but {', '.join(TARGETS)}")
    return names


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 200 <= int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 200 to 1000000")
    return int(text)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """One that others than root may enter, as PostgreSQL has to."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-sinks-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it: 0 if each target holds what the log says."""
    parser = argparse.ArgumentParser(prog="make sinks-demo", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=_rows, default=20_000, help="how many changes (default: %(default)s)")
    parser.add_argument("--targets", type=_names, default=list(_ALL), help=f"default: {','.join(_ALL)}")
    chosen = parser.parse_args(arguments)
    with _directory() as folder:
        demo = _Demo(folder, chosen.rows, chosen.targets)
        equal = demo.run()
    for line in demo.missing:
        _say(line)
    return 0 if equal else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
