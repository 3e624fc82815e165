"""The text of ``penstock stats``: figures with their units, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from publishers.model.change import time_of

__all__ = ["directory_words", "server_words"]


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
            yield from (f"  {line}" for line in _log(log))


def _log(log: Mapping[str, Any]) -> Iterator[str]:
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
