"""Carries out orders for groups from clients that have not joined them."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from publishers.groups import ConsumerGroup, GroupStatistics
from transports.access.grant import Grant
from transports.codec.group_orders import GroupOrder, letter_json
from transports.codec.groups import pending_json
from transports.server.statistics import group_json

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["carry_out_group"]

_MOST_BYTES: Final = 1 << 20


def carry_out_group(name: str, log: "ChangeLog", grant: Grant, order: GroupOrder) -> dict[str, Any]:
    """Carries out an order; reads and writes the disk on the calling thread.

    Args:
        name: The name of the log, as the client knows it.
        log: The log of the group.
        grant: The grant of the client, which lists the groups that it may use.
        order: The order.

    Returns:
        The answer: statistics for ``info``; rows for ``pending`` and ``dead``; the number of letters removed for ``discard``, or of deliveries taken back for ``release``; else the state and position
        of the group afterwards.

    Raises:
        Forbidden: If the grant does not list the group.
        PenstockError: If the order fails.
    """
    grant.check_group(order.name)
    if order.do == "create":
        grant.check_room(log, "groups")
        options = msgspec.structs.asdict(order.settings)
        made = log.groups.create(order.name, order.criteria, since=order.start, **options)
        return _outcome(name, log, made.info(), changed=True)
    group = log.groups.open(order.name)
    match order.do:
        case "info":
            return {"log": name, "name": order.name, **group_json(log, group.info())}
        case "pending":
            rows = group.pending_rows(limit=order.limit)
            return {"total": group.pending().total, "rows": pending_json(rows, log.token)}
        case "dead":
            return _letters(group, order)
        case "discard":
            return {"count": group.dead.discard(order.positions)}
        case "release":
            return {"count": group.release(order.min_idle)}
        case "drop":
            log.groups.drop(order.name)
            return {"log": name, "name": order.name}
        case "reset":
            return _outcome(name, log, log.groups.seek(order.name, order.start), changed=True)
        case _:
            changed = group.pause() if order.do == "pause" else group.resume()
    return _outcome(name, log, group.info(), changed=changed)


def _letters(group: ConsumerGroup, order: GroupOrder) -> dict[str, Any]:
    """A page of dead letters, by position; at least one letter if there is one."""
    found: list[msgspec.Raw] = []
    nbytes = 0
    last = None
    for letter in group.dead.inspect():
        if order.after is not None and letter.position <= order.after:
            continue
        encoded = msgspec.json.encode(letter_json(letter))
        nbytes += len(encoded)
        if found and (len(found) >= order.limit or nbytes > _MOST_BYTES):
            return {"letters": found, "next": str(last)}
        found.append(msgspec.Raw(encoded))
        last = letter.position
    return {"letters": found, "next": None}


def _outcome(name: str, log: "ChangeLog", statistics: GroupStatistics, *, changed: bool) -> dict[str, Any]:
    return {
        "log": name,
        "name": statistics.name,
        "state": statistics.state.value,
        "cursor": str(log.token(statistics.floor)),
        "version": statistics.floor.version,
        "generation": statistics.generation,
        "changed": changed,
    }
