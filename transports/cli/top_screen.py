"""The screen of ``penstock top``: turns the figures of two moments into rates, and rates into lines that fit a terminal."""

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from transports.cli.output import clean

__all__ = ["Moment", "digest", "fitted", "screen"]

_SUBSCRIPTIONS: Final = 64

Moment = Mapping[str, Any]
"""The statistics of a server or directory, with ``status`` and ``health`` of its logs, and ``at``, the time in seconds."""


def digest(before: Moment | None, now: Moment) -> dict[str, Any]:
    """Returns the figures of a moment, and the rates since the previous one; without one, rates are None."""
    seconds = None if before is None else now["at"] - before["at"]
    earlier = {} if before is None else before["logs"]
    return {
        "status": now.get("status"),
        "connections": now.get("connections"),
        "protocols": now.get("protocols", {}),
        "unsentBytes": now.get("unsentBytes"),
        "mostUnsentBytes": now.get("mostUnsentBytes"),
        "ended": now.get("ended", {}),
        "errors": now.get("errors", {}),
        "logs": {
            name: _log(name, earlier.get(name, {}), log, seconds, now) for name, log in now["logs"].items()
        },
    }


def _log(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], seconds: float | None, moment: Moment
) -> dict[str, Any]:
    health = moment.get("health", {}).get(name, {}).get("status")
    if "watermark" not in now:  # the log has ended, or the caller may not operate it
        return {"health": now.get("failure") or health}
    slowest = (now.get("lags") or {}).get("1", {})

    def rate(*path: str) -> float | None:
        new, old = _at(now, *path), _at(before, *path)
        if new is None or old is None or not seconds or new < old:  # the server has restarted meanwhile
            return None
        return float(new - old) / seconds

    return {
        "health": health,
        "version": now["watermark"],
        "commitsPerSecond": rate("watermark"),
        "changesPerSecond": rate("published", "changes"),
        "deliveredPerSecond": rate("delivered", "changes"),
        "readBytesPerSecond": rate("bytesRead"),
        "subscriptions": now["subscriptionCount"],
        "behind": now["lagging"],
        "lagVersions": slowest.get("versions"),
        "lagChanges": slowest.get("changes"),
        "lagSeconds": slowest.get("seconds"),
        "ringFill": _at(now, "rings", "fill"),
        "queueFill": _share(now.get("queueBytes"), _at(now, "bounds", "queueBytes")),
        "latency99": _quantile(before.get("sendLatency"), now.get("sendLatency"), 0.99),
        "expirySeconds": _at(now, "expiry", "seconds"),
        "consumers": list(_consumers(now)),
        "slowest": sorted(_subscriptions(before, now, seconds), key=lambda one: -one["versions"]),
    }


def _subscriptions(
    before: Mapping[str, Any], now: Mapping[str, Any], seconds: float | None
) -> Iterator[dict[str, Any]]:
    listed = [one for publisher in now["publishers"] for one in publisher["subscriptions"]]
    for one in listed[:_SUBSCRIPTIONS]:
        place = one["position"]
        yield {
            "state": one["state"],
            "position": f"{place['version']}:{place['index']}",
            "versions": one["behind"]["versions"],
            "changes": one["lag"],
            "seconds": one["behind"]["seconds"],
            "demand": one["demand"],
            "delivered": one["delivered"],
        }


def _consumers(now: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the sinks, slots and groups of a log: those of its owner, or as the owner has stored them. A sink's slot is in its line."""
    sinks = now.get("sinks", {})
    stored = [("slot", one["name"], one) for one in now.get("storedSlots", ())]
    stored += [("group", one["name"], one) for one in now.get("storedGroups", ())]
    for kind, name, one in [
        *(("sink", name, one) for name, one in sinks.items()),
        *(("slot", name, one) for name, one in now.get("slots", {}).items() if name not in sinks),
        *(("group", name, one) for name, one in now.get("consumerGroups", {}).items()),
        *stored,
    ]:
        lag = one["lag"] or {}
        yield {
            "kind": kind,
            "name": name,
            "state": "paused" if one.get("paused") else one["state"],
            "versions": lag.get("versions"),
            "changes": lag.get("changes"),
            "seconds": lag.get("seconds"),
            "pending": one.get("pending", one.get("delivered")) if kind == "group" else None,
            "failures": one.get("failures"),
            "dead": one.get("dead", one.get("deadLetters")),
        }


def _at(figures: Mapping[str, Any], *path: str) -> Any:
    found: Any = figures
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _share(value: float | None, bound: float | None) -> float | None:
    return None if value is None or not bound else value / bound


def _quantile(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, share: float) -> float | None:
    """Returns the upper bound of the bucket below which the given share of recent observations lies; None without observations."""
    if now is None:
        return None
    old = {} if before is None else before["buckets"]
    counts = [
        (math.inf if bound == "+Inf" else float(bound), n - old.get(bound, 0))
        for bound, n in now["buckets"].items()
    ]
    total = counts[-1][1]
    if total <= 0 or any(later < earlier for (_, earlier), (_, later) in pairwise(counts)):
        return None
    return next((bound for bound, within in counts if within >= share * total and math.isfinite(bound)), None)


# Lines.


def screen(title: str, figures: Mapping[str, Any], columns: int, rows: int | None) -> list[str]:
    """Returns the lines, none wider than ``columns``, and at most ``rows`` of them; None for no bound on the rows."""
    lines = [title, _clients(figures), ""]
    logs = figures["logs"]
    lines += _table(
        (
            "LOG",
            "HEALTH",
            "VERSION",
            "COMMIT/s",
            "CHANGE/s",
            "SENT/s",
            "SUBS",
            "BEHIND",
            "LAG",
            "RING",
            "QUEUE",
            "P99",
            "EXPIRES",
        ),
        [
            (
                clean(name),
                clean(str(log["health"] or "-")),
                _number(log.get("version")),
                _number(log.get("commitsPerSecond")),
                _number(log.get("changesPerSecond")),
                _number(log.get("deliveredPerSecond")),
                _number(log.get("subscriptions")),
                _number(log.get("behind")),
                _time(log.get("lagSeconds")),
                _percent(log.get("ringFill")),
                _percent(log.get("queueFill")),
                _time(log.get("latency99")),
                _time(log.get("expirySeconds")),
            )
            for name, log in logs.items()
        ],
    )
    lines += _consumer_lines(logs)
    slowest = sorted(
        ((name, one) for name, log in logs.items() for one in log.get("slowest", ())),
        key=lambda each: -each[1]["versions"],
    )
    if slowest:
        lines += ["", *_table(
            ("SLOWEST", "STATE", "NEXT", "VERSIONS", "CHANGES", "LAG", "DEMAND", "DELIVERED"),
            [
                (
                    clean(name),
                    clean(one["state"]),
                    one["position"],
                    _number(one["versions"]),
                    _number(one["changes"]),
                    _time(one["seconds"]),
                    _number(one["demand"]),
                    _number(one["delivered"]),
                )
                for name, one in slowest
            ],
        )]  # fmt: skip
    if rows is not None and len(lines) > rows:
        left_out = len(lines) - rows + 1
        lines = [*lines[: max(0, rows - 1)], f"... {left_out} more lines"][:rows]
    return [fitted(line, columns) for line in lines]


def _consumer_lines(logs: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            clean(f"{name}: {one['kind']} {one['name']}"),
            clean(one["state"]),
            _number(one["versions"]),
            _number(one["changes"]),
            _time(one["seconds"]),
            _number(one["pending"]),
            _number(one["failures"]),
            _number(one["dead"]),
        )
        for name, log in logs.items()
        for one in log.get("consumers", ())
    ]
    head = ("CONSUMER", "STATE", "VERSIONS", "CHANGES", "LAG", "PENDING", "FAILED", "DEAD")
    return ["", *_table(head, rows)] if rows else []


def _clients(figures: Mapping[str, Any]) -> str:
    if figures["status"] is None:
        return "a directory: it serves no clients"
    if figures["connections"] is None:
        return "this caller may not see the figures of the server itself"
    parts = [f"{figures['connections']:,} connections"]
    parts += [f"{count:,} {clean(name)}" for name, count in figures["protocols"].items() if count]
    parts.append(f"{_bytes(figures['unsentBytes'])} unsent, {_bytes(figures['mostUnsentBytes'])} of one")
    parts += [f"{count:,} ended: {clean(why)}" for why, count in figures["ended"].items()]
    parts += [f"{count:,} errors {clean(code)}" for code, count in figures["errors"].items()]
    return "; ".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns: the first two to the left, the others to the right."""
    widths = [max(_width(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [
            cell + " " * (width - _width(cell)) if place < 2 else " " * (width - _width(cell)) + cell
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def fitted(line: str, columns: int) -> str:
    """Truncates a line to ``columns`` columns."""
    if _width(line) <= columns:
        return line
    taken, width = [], 0
    for letter in line:
        width += _width(letter)
        if width > columns - 1:
            break
        taken.append(letter)
    return "".join(taken) + ">" if columns else ""


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def _time(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return "0" if not value else f"{value * 1000:.3g} ms"
    for size, unit in ((60, "s"), (3_600, "min"), (86_400, "h")):
        if value < size:
            return f"{value / (size / 60 if unit != 'h' else 3_600):.3g} {unit}"
    return f"{value / 86_400:,.1f} d"
