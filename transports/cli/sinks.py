"""``penstock sinks``: runs, lists, controls and tests the sinks that a file declares."""

import argparse
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from flow.clock import SYSTEM_CLOCK
from publishers.errors import InvalidOption, LogBusy, NotALog, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.slots.inspection import stored_slots
from publishers.store.directory import kind_of
from publishers.store.store import ChangeStore
from publishers.wal import RealFileSystem
from transports.cli import lines
from transports.cli.arguments import ArgumentParser
from transports.cli.output import show
from transports.cli.source import followed, is_store, owned
from transports.codec.starts import start_of_text
from transports.sinks.config import DeclaredSink, SinksFile, read_sinks
from transports.sinks.control import ControlSocket, asked
from transports.sinks.declared import StoredSinks, left_behind
from transports.sinks.endpoint import SinksEndpoint
from transports.sinks.errors import SinkError
from transports.sinks.lease import Lease
from transports.sinks.log_sinks import LogSinks
from transports.sinks.notes import SinkNotes
from transports.sinks.runner import SinkRunner
from transports.sinks.sink import SinkContext
from transports.sinks.sink_target import try_out
from transports.sinks.state import SinkState

__all__ = ["add_arguments", "run_beside"]

_LOG: Final = logging.getLogger("penstock.sinks")
_DONE: Final = 0
_FAILED: Final = 1
_LOOK: Final = 0.25  # seconds; a signal may not interrupt a longer wait
_PLACE: Final = "earliest, latest, a version, a time, the id of a transaction, or the cursor of an event"


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the commands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "run penstock.toml", "run the sinks of a file, as the owner of their log", _run)
    _add(commands, "list penstock.toml", "list the sinks of a file", _list).json()
    _add(
        commands, "status penstock.toml", "show the state of each sink, also while the sinks run", _status
    ).json()
    for name, what in (
        ("pause", "pause a sink until it is resumed"),
        ("resume", "resume a sink; a refused batch is sent again"),
        ("seek", "move a sink to another place"),
        ("off", "switch a sink off: nothing is sent, and no history is held for it"),
        ("on", "switch a sink on; the gap is reported to its target"),
        ("again", "send rows of the present state once more, and then changes again: to repair a target"),
    ):
        example = f"{name} penstock.toml hook" + (" 42" if name == "seek" else "")
        ordering = _add(commands, example, what, _order)
        ordering.value("name", "NAME", "name of a sink")
        if name == "seek":
            ordering.value("place", "PLACE", _PLACE)
        elif name == "on":
            ordering.value("--place", "PLACE", f"where the sink continues, by default latest: {_PLACE}")
        elif name == "again":
            ordering.each("--entity-type", "ENTITY_TYPE", "only rows of this entity type")
            ordering.value("--after", "KEY", "only rows behind this key, with one entity type")
            ordering.value("--until", "KEY", "only rows up to this key")
        ordering.json()
        ordering.set_defaults(do=name)
    _add(
        commands,
        "test penstock.toml",
        "open each target: send one signed example to a webhook and print its answer; print whether other targets answer",
        _test,
    ).json()


def _add(commands: Any, example: str, what: str, run: Any) -> ArgumentParser:
    name = example.partition(" ")[0]
    parser: ArgumentParser = commands.add_parser(
        name, help=what, description=what, example=f"penstock sinks {example}"
    )
    parser.value("file", "FILE", "file that declares sinks (TOML)")
    parser.set_defaults(command=run)
    return parser


def _run(chosen: argparse.Namespace) -> int:
    """Runs until SIGINT (returns 130), SIGTERM (returns 0), or until all sinks of rows only have completed."""
    lines.begin(chosen, always=True)
    declared = read_sinks(chosen.file)
    finished = threading.Event()
    failed: list[str] = []

    def fail(name: str) -> None:
        failed.append(name)
        finished.set()

    before = signal.signal(signal.SIGTERM, lambda *_: finished.set())
    try:
        if declared.lease is None:
            with _owned(declared, lasting=True) as log:
                _carry(declared, log, None, finished, fail)
        else:
            with declared.lease.make() as lease:
                _stand_by(declared, lease, finished, fail)
    finally:
        signal.signal(signal.SIGTERM, before)
    if failed:
        raise SinkError(
            f"sink {failed[0]!r} has failed, and on_failure = 'stop' ends the process; see the log"
        )
    return _DONE


@contextlib.contextmanager
def run_beside(
    file: str,
    directory: str,
    served: ChangeLog | ChangeStore,
    on_failure: Callable[[str], object] = lambda _: None,
) -> Iterator[tuple[LogSinks, Callable[..., SinksEndpoint]]]:
    """Runs the sinks of a file on a log that this process owns and serves.

    Args:
        file: The file that declares the sinks.
        directory: The directory of the served log or store.
        served: The log or store, opened for writing.
        on_failure: As for `LogSinks`.

    Yields:
        The sinks, and a function that makes the endpoint ``/sinks``.

    Raises:
        InvalidOption: If the file is invalid, or declares sinks of another log.
    """
    declared = read_sinks(file)
    if declared.directory.resolve() != Path(directory).resolve():
        raise InvalidOption("--sinks", file, f"a file whose log is {directory}, and not {declared.directory}")
    if isinstance(served, ChangeLog):
        log = served
    else:
        names = ", ".join(served) or "none yet"
        if declared.log_name is None or declared.log_name not in served:
            raise InvalidOption(
                f"{file} log_name", declared.log_name, f"one of the logs of the store: {names}"
            )
        log = served.log(declared.log_name)
    with (
        contextlib.nullcontext() if declared.lease is None else declared.lease.make() as lease,
        LogSinks(log, lease=lease, on_failure=on_failure) as sinks,
        ControlSocket(log.path, sinks),
    ):
        stored = _begin(declared, log, sinks)
        yield sinks, partial(SinksEndpoint, sinks, stored, declared.http_kinds)


def _begin(declared: SinksFile, log: ChangeLog, sinks: LogSinks) -> StoredSinks:
    """Adds the sinks of the file, and those declared over HTTP that the file does not declare."""
    stored = StoredSinks(log.path, sinks.log_name, declared.sinks, declared.path)
    for one in (*declared.sinks.values(), *stored):
        sinks.add(one.name, one.sink, one.options)
    for name in left_behind(log.path, sinks, log.slots):
        _LOG.warning(
            "sink %s is not declared in %s any more: nothing is sent to it, but its slot keeps history from %s on; declare it again, or "
            "end this process and drop the slot by 'penstock slot drop %s %s'",
            name,
            declared.path,
            log.slots.info(name).position,
            log.path,
            name,
        )
    return stored


def _carry(
    declared: SinksFile,
    log: ChangeLog,
    lease: Lease | None,
    finished: threading.Event,
    fail: Callable[[str], object],
) -> None:
    """Runs the sinks until ``finished`` is set, all sinks are completed, or the lease is lost."""
    with LogSinks(log, lease=lease, on_failure=fail) as runners, ControlSocket(log.path, runners):
        _begin(declared, log, runners)
        by = "" if lease is None else f", epoch {lease.epoch}, as {lease.holder}"
        _say(f"running {', '.join(runners)} of {log.name}{by}")
        while not finished.wait(_LOOK):
            if lease is not None and not lease.held():
                return
            if all(one.state is SinkState.COMPLETED for one in runners.values()):
                _say("all rows are sent")
                finished.set()


def _stand_by(
    declared: SinksFile, lease: Lease, finished: threading.Event, fail: Callable[[str], object]
) -> None:
    """Runs the sinks whenever the lease is held, until ``finished`` is set."""
    with _looked_at(declared):  # reports an unusable log now, not when the lease is gained
        pass
    said = None
    while not finished.is_set():
        waiting = f"{lease.holder} waits for the lease"
        if lease.held():
            try:
                with _owned(declared, lasting=True) as log:
                    _carry(declared, log, lease, finished, fail)
                said = None
                continue
            except LogBusy as error:  # the earlier holder is still closing it, or a server has it open
                writer = f"process {error.pid}" if error.pid else "another process"
                waiting = f"{lease.holder} holds the lease and waits for the log, which {writer} writes"
        if waiting != said:
            _say(waiting)
            said = waiting
        finished.wait(_LOOK)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _list(chosen: argparse.Namespace) -> int:
    declared = read_sinks(chosen.file)
    found = [{"name": one.name, "kind": one.kind, "target": _target(one)} for one in declared.sinks.values()]
    show(chosen, {"sinks": found}, [f"{one['name']}: {one['kind']}, {one['target']}" for one in found])
    return _DONE


def _target(one: DeclaredSink) -> str:
    return str(getattr(one.sink, "directory", None) or repr(one.sink).removesuffix(">").partition(" ")[2])


def _status(chosen: argparse.Namespace) -> int:
    declared = read_sinks(chosen.file)
    with _looked_at(declared) as log:
        found = asked(log.path, {"do": "status"})
        if found is None:
            found = [_stored(log, name) for name in declared.sinks]
    show(chosen, {"sinks": found}, [_line(one) for one in found])
    return _DONE


def _stored(log: ChangeLog, name: str) -> dict[str, Any]:
    """Returns what is stored of a sink that does not run."""
    note = SinkNotes(log.path, name).current
    position, what = note.place(log.position_of), ""
    if note.off is not None:
        what = " (off)"
    elif note.done is not None:
        what = " (completed)"
    else:
        for one in stored_slots(RealFileSystem(), log.path, log.log_id, log.position_of):
            if one.record.name == name:
                position, what = one.position, " (paused)" if one.record.paused else ""
    place = None if position is None else str(position)
    return {"name": name, "state": f"not running{what}", "position": place, "reason": None}


def _line(one: dict[str, Any]) -> str:
    why = one.get("reason") or (one.get("last_error") if one["state"] == "RETRYING" else None)
    where = f" at {one['position']}" if one["position"] else ", no place yet"
    return f"{one['name']}: {one['state']}{where}" + (f": {why}" if why else "")


def _order(chosen: argparse.Namespace) -> int:
    declared = read_sinks(chosen.file)
    if chosen.name not in declared.sinks:
        raise SinkError(
            f"{chosen.file} declares no sink {chosen.name!r}; it declares {', '.join(declared.sinks)}"
        )
    ordered = {
        name: value
        for name in ("place", "after", "until")
        if (value := getattr(chosen, name, None)) is not None
    }
    if "place" in ordered:
        start_of_text("PLACE", chosen.place)
    question: dict[str, Any] = {"do": chosen.do, "name": chosen.name, **ordered}
    if chosen.do == "again" and chosen.entity_type:
        question["criteria"] = [{"entity_types": chosen.entity_type}]
    with _looked_at(declared) as log:
        found = asked(log.path, question)
    if found is None:
        found = _status_at_rest(declared, chosen)
    show(chosen, found, [_line(found)])
    return _DONE


def _status_at_rest(declared: SinksFile, chosen: argparse.Namespace) -> dict[str, Any]:
    """Applies the order to the slot of a sink that does not run."""
    if chosen.do == "again":
        raise SinkError(f"sink {chosen.name!r} does not run; start it with 'penstock sinks run' first")
    one = declared.sinks[chosen.name]
    with _owned(declared) as log:
        runner = SinkRunner(log, one.name, one.sink, one.options)
        place = start_of_text("PLACE", chosen.place or "latest") if hasattr(chosen, "place") else None
        orders: dict[str, Callable[[], Any]] = {
            "pause": runner.pause,
            "resume": runner.resume,
            "seek": lambda: runner.seek(place),
            "off": runner.switch_off,
            "on": lambda: runner.switch_on(place),
        }
        ordered = orders[chosen.do]()
        runner.close()
        ordered.result()
    with _looked_at(declared) as log:
        return _stored(log, one.name)


def _test(chosen: argparse.Namespace) -> int:
    declared = read_sinks(chosen.file)
    found = []
    with _looked_at(declared) as log:
        for one in declared.sinks.values():
            view = one.options.view_for(one.sink)
            said, error = _tried(one, SinkContext.of(log, one.name, view, SYSTEM_CLOCK))
            found.append({"name": one.name, "good": error is None, "said": said, "error": error})
    show(
        chosen,
        {"sinks": found},
        [
            f"{one['name']}: " + (f"good, {one['said']}" if one["good"] else str(one["error"]))
            for one in found
        ],
    )
    return _DONE if all(one["good"] for one in found) else _FAILED


def _tried(one: DeclaredSink, context: SinkContext) -> tuple[str | None, str | None]:
    """Returns the answer of a target, or its error."""
    try:
        return try_out(one.sink, context), None
    except (PenstockError, OSError) as error:
        return None, str(error)


@contextlib.contextmanager
def _owned(declared: SinksFile, *, lasting: bool = False) -> Iterator[ChangeLog]:
    """Opens the existing log for writing: its owner stores the positions, and while sinks run keeps the state that rows come from."""
    if not is_store(str(declared.directory)) and kind_of(RealFileSystem(), declared.directory) != "log":
        raise NotALog(declared.directory, "there is none; 'penstock append' makes one")
    options = {"state": True} if lasting and declared.state else {}
    with owned(str(declared.directory), declared.log_name, lasting=lasting, **options) as log:
        yield log


@contextlib.contextmanager
def _looked_at(declared: SinksFile) -> Iterator[ChangeLog]:
    """Opens the log read-only, because another process may own it."""
    with followed(str(declared.directory), declared.log_name) as log:
        yield log
