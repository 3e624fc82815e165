"""``penstock stats``: prints the statistics of a log, from a directory or a server, as text or JSON."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from publishers.errors import PenstockError
from publishers.groups.record import GROUPS_NAME
from publishers.log.changelog import ChangeLog
from publishers.model.change import time_of
from publishers.model.position import epoch_text
from publishers.slots.record import SLOTS_NAME
from publishers.store.directory import SYSTEM_DIRECTORY
from publishers.store.log_entries import SYSTEM
from publishers.wal import Follower, RealFileSystem
from publishers.wal.checks.verify import is_live
from publishers.wal.files.segment import segment_number
from transports.cli.arguments import ArgumentParser
from transports.cli.http import ServerTrust, add_token, ask, token_of, trust_of
from transports.cli.output import show
from transports.cli.source import logs_in, url_of
from transports.codec.stored import stored_groups_json, stored_slots_json

__all__ = ["add_arguments", "run"]


def directory_words(name: str, log: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines about a log in a directory."""
    oldest, newest, committed = log["oldest"], log["newest"], log.get("committedAt")
    when = "" if committed is None else f", committed {time_of(committed):%Y-%m-%d %H:%M:%S} UTC"
    yield name
    yield f"  {_versions(oldest, newest, when)}"
    yield f"  {_bytes(log['bytes'])} in {_count(log['segments'], 'segment')}; {'a' if log['writer'] else 'no'} process writes it"
    yield f"  opened for writing {_count(log['epoch'], 'time')} (its epoch); log id {log['logId']}"
    if log["kept"]:
        yield f"  kept aside by recoveries and repairs: {', '.join(log['kept'])}"
    yield from (f"  {line}" for line in _stored(log))


def server_words(statistics: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines about the logs of a server; further figures are in the JSON."""
    if "connections" in statistics:
        yield f"{_count(statistics['connections'], 'connection')}, {_bytes(statistics['unsentBytes'])} not sent yet"
    for why, number in statistics.get("ended", {}).items():
        yield f"{_count(number, 'connection')} ended by the server: {why}"
    for name, log in statistics["logs"].items():
        yield name
        if "failure" in log:
            yield f"  it is not served any more: {log['failure']}"
        else:
            yield from (f"  {line}" for line in _log_words(log))


def _log_words(log: Mapping[str, Any]) -> Iterator[str]:
    yield _versions(log["oldest"]["version"], log["watermark"])
    yield (
        f"{_count(log['subscriptionCount'], 'subscription')} to {_count(log['publisherCount'], 'publisher')}, "
        f"{log['lagging']:,} behind; {_count(log['delivered']['changes'], 'change')} delivered"
    )
    yield (
        f"in memory: {_bytes(log['queueBytes'])} in queues, {_bytes(log['replayBytes'])} for those behind, "
        f"{_bytes(log['withheldBytes'])} withheld"
    )
    yield f"on disk: {_bytes(log['bytesRead'])} read, {_bytes(log['heldBytes'])} held for consumers"
    for hold in log["holds"]:
        yield f"hold {hold['name']}: {hold['state']}, keeps {_bytes(hold['heldBytes'])}, from {_place(hold['position'])} on"
    for name, sink in log.get("sinks", {}).items():
        yield f"sink {name}: {_sink(sink)}"
    for name, slot in log.get("slots", {}).items():
        yield f"slot {name}: {_slot(slot)}"
    for name, group in log.get("consumerGroups", {}).items():
        yield f"group {name}: {_group(group)}"
    yield from _stored(log)
    for number, publisher in enumerate(log["publishers"], 1):
        ring = publisher["ring"]
        what = "some changes" if publisher["criteria"] else "all changes"
        yield (
            f"publisher {number} of {what}: {ring['events']:,} of at most {_count(log['ringEvents'], 'event')} in its ring "
            f"({_bytes(ring['bytes'])}), {_count(publisher['subscriptionCount'], 'subscription')}"
        )
        for one in publisher["subscriptions"]:
            yield f"  {_subscription(one)}"


def _subscription(statistics: Mapping[str, Any]) -> str:
    behind = statistics["behind"]
    lag = "has everything"
    if behind["versions"]:
        known = [] if behind["bytes"] is None else [_bytes(behind["bytes"])]
        known += [] if behind["seconds"] is None else [f"{behind['seconds']:.1f} s"]
        lag = ", ".join([_count(behind["versions"], "version"), *known]) + " behind"
    return (
        f"{statistics['state']}, {lag}, next {_place(statistics['position'])}; {_count(statistics['demand'], 'change')} requested, "
        f"{statistics['queued']:,} queued, {statistics['delivered']:,} delivered"
    )


def _group(statistics: Mapping[str, Any]) -> str:
    error = "" if statistics["lastError"] is None else f"; last error: {statistics['lastError']}"
    again = "" if statistics["nextSeconds"] is None else f", the next in {statistics['nextSeconds']:.1f} s"
    return (
        f"{statistics['state']}, {_count(statistics['lag']['versions'], 'version')} behind, {statistics['pending']:,} pending, "
        f"{statistics['due']:,} due{again}, {_count(statistics['consumers'], 'consumer')}, {_count(statistics['dead'], 'dead letter')}{error}"
    )


def _sink(sink: Mapping[str, Any]) -> str:
    lag = "" if sink["lag"] is None else f", {_count(sink['lag']['versions'], 'version')} behind"
    again = "" if sink["retryIn"] is None else f", attempt {sink['attempt']:,} in {sink['retryIn']:.1f} s"
    why = sink["reason"] or (sink["lastError"] if sink["retryIn"] is not None else None)
    counts = f"{_count(sink['changes'], 'change')} sent, {_count(sink['failures'], 'failure')}"
    return f"{sink['state']}{lag}, {counts}{again}" + ("" if why is None else f": {why}")


def _slot(slot: Mapping[str, Any]) -> str:
    state = f"{slot['state']}{', paused' if slot['paused'] else ''}"
    held = "" if slot["heldBytes"] is None else f", keeps {_bytes(slot['heldBytes'])}"
    return f"{state}, {_count(slot['lag']['versions'], 'version')} behind{held}, from {_place(slot['position'])} on"


def _stored(log: Mapping[str, Any]) -> Iterator[str]:
    """The lines of slots and groups that the owner of the log has stored."""
    for slot in log.get("storedSlots", []):
        versions = slot["lag"]["versions"]
        behind = "" if versions is None else f", {_count(versions, 'version')} behind"
        state = f"{slot['state']}{', paused' if slot['paused'] else ''}"
        yield f"slot {slot['name']}: {state}{behind}, from {slot['place']} on; as stored by the owner of the log"
    for group in log.get("storedGroups", []):
        yield f"group {group['name']}: {_stored_group(group)}"


def _stored_group(group: Mapping[str, Any]) -> str:
    versions = group["lag"]["versions"]
    behind = "" if versions is None else f" {_count(versions, 'version')} behind,"
    return f"{group['state']},{behind} {group['notDone']:,} not done, {_count(group['dead'], 'dead letter')}; as stored by the owner of the log"


def _versions(oldest: int, newest: int, when: str = "") -> str:
    coming = f"next version {newest + 1:,}"
    if newest < max(oldest, 1):
        return f"no versions {'yet' if newest < 1 else 'kept'}; {coming}"
    return f"newest version {newest:,}{when}; {coming}; oldest version kept {oldest:,}"


def _place(position: Mapping[str, Any]) -> str:
    return f"{position['version']}:{position['index']}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bytes(number: float) -> str:
    if number < 1024:
        return _count(int(number), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:,.1f} TiB"


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Prints the size and the ends of a log, or the rings and subscribers of a server, as text; with --json every figure."
    parser.value("source", "DIR|URL", "directory of a log or store, or http://host:port/ of a server")
    parser.json("as one JSON document")
    add_token(parser)


def run(chosen: argparse.Namespace) -> int:
    """Prints the statistics."""
    url = url_of(chosen.source)
    statistics: Mapping[str, Any]
    if url is not None:
        statistics = _fetched(url, token_of(chosen), trust_of(chosen, url))
    else:
        paths = logs_in(chosen.source)
        statistics = {"logs": {_name(path): _log(path) for path in paths}}
    show(chosen, statistics, _words(url, statistics))
    return 0


def _words(url: str | None, statistics: Mapping[str, Any]) -> Iterator[str]:
    if url is None:
        for name, log in statistics["logs"].items():
            yield from directory_words(name, log)
        return
    try:
        yield from server_words(statistics)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConnectionError(
            f"{url} answers with statistics of another version; --json prints them as they are"
        ) from None


def _name(path: Path) -> str:
    """The name by which a server knows the log of a directory."""
    return SYSTEM if path.name == SYSTEM_DIRECTORY else path.name or str(path)


def _log(path: Path) -> dict[str, Any]:
    filesystem = RealFileSystem()
    with contextlib.closing(Follower.open(path)) as follower:
        names = filesystem.listing(path)
        info: dict[str, Any] = {
            "logId": follower.log_id.hex,
            "epoch": follower.epoch,
            "oldest": follower.oldest,
            "newest": follower.visible,
            "writer": is_live(filesystem, path),
            "segments": sum(segment_number(name) is not None for name in names),
            "bytes": sum(_size(filesystem, path / name) for name in names if segment_number(name)),
            "kept": [name for name in names if name.endswith((".torn", ".broken"))],
        }
        with contextlib.suppress(PenstockError):
            info["epochs"] = [
                epoch._asdict() | {"random": epoch_text(epoch.epoch, epoch.random).partition(".")[2] or None}
                for epoch in follower.epochs
            ]
        with contextlib.suppress(PenstockError):
            frame = (
                follower.reader.read(follower.reader.locate(follower.visible)) if follower.visible else None
            )
            info["committedAt"] = None if frame is None else frame.header.committed_at
    if {SLOTS_NAME, GROUPS_NAME} & {*names}:
        # Another user may not read them; nothing else depends on them.
        with contextlib.suppress(PenstockError, OSError), ChangeLog.open(path, read_only=True) as log:
            info["storedSlots"] = stored_slots_json(log)
            info["storedGroups"] = stored_groups_json(log)
    return info


def _size(filesystem: RealFileSystem, path: Path) -> int:
    try:
        with contextlib.closing(filesystem.open(path, "read")) as file:
            return file.size()
    except FileNotFoundError:
        return 0  # retention has deleted it meanwhile


def _fetched(url: str, token: str | None, trust: ServerTrust | None) -> Mapping[str, Any]:
    statistics = ask(url, "/statistics", "statistics", token, trust)
    if statistics is None or not isinstance(statistics.get("logs"), dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    return statistics
