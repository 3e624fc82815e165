"""The figures of a log, its groups and its subscriptions as JSON."""

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from publishers.fanout.state import SubscriptionLag
from publishers.groups import GroupStatistics
from publishers.log.lag import Expiry
from publishers.model.position import Position
from transports.errors import shortened

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["group_json", "place_json", "plain", "told"]

_LISTED: Final = 64


def told(log: "ChangeLog", figures: Any, names: str) -> dict[str, Any]:
    """The figures of these names, under the names of the wire: ``bytes_read`` is ``bytesRead``, and ``nbytes`` is ``bytes``."""
    return {_wire_name(name): plain(log, getattr(figures, name)) for name in names.split()}


def plain(log: "ChangeLog", value: Any) -> Any:
    """A figure as JSON."""
    if isinstance(value, Position):
        return place_json(log, value)
    if isinstance(value, SubscriptionLag | Expiry):
        return told(log, value, " ".join(one.name for one in fields(value)))
    return value.value if isinstance(value, Enum) else value


def _wire_name(name: str) -> str:
    first, *others = ("bytes" if name == "nbytes" else name).split("_")
    return first + "".join(map(str.capitalize, others))


def group_json(log: "ChangeLog", statistics: GroupStatistics, *, discreet: bool = False) -> dict[str, Any]:
    """The statistics of a group as JSON; if ``discreet``, without the reasons of consumers."""
    figures = "state floor head generation pending due parked dying acked redelivered dead lost lag"
    return {
        **told(log, statistics, figures),
        "consumers": len(statistics.consumers),
        "consumerNames": list(statistics.consumers[:_LISTED]),
        "lastError": None if discreet or statistics.last_error is None else shortened(statistics.last_error),
        "nextSeconds": statistics.next_in,
    }


def place_json(log: "ChangeLog", position: Position) -> dict[str, Any]:
    """A position as JSON."""
    return {"version": position.version, "index": position.index, "cursor": str(log.token(position))}
