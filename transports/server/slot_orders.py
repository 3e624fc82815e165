"""Carries out the orders of clients for slots that they have not opened."""

from typing import TYPE_CHECKING

from publishers.slots.errors import NoSuchSlot
from publishers.slots.state import SlotStatistics
from transports.access.grant import Grant, LogAction
from transports.codec.slot_orders import SlotInfo, SlotOrder, slot_json
from transports.codec.stored import stored_slot, stored_slots_of
from transports.errors import Forbidden

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["carry_out"]


def carry_out(name: str, log: "ChangeLog", grant: Grant, order: SlotOrder) -> list[SlotInfo]:
    """Carries out an order; reads and writes the disk on the calling thread.

    At a log that is followed here, ``list`` and ``info`` return slots as their owner has stored them.

    Args:
        name: The name of the log, as the client knows it.
        log: The log of the slots.
        grant: The grant of the client, which names the slots that it may use, or allows it to operate the followed log.
        order: The order of the client.

    Returns:
        The state of the slots after the order; empty after ``drop``.

    Raises:
        Forbidden: If the grant does not name the slot, or hides a part of the log whose stored slots are asked for.
        LogReadOnly: If the log is followed here, and the order changes a slot.
        PenstockError: If the order cannot be carried out.
    """
    if log.read_only and order.reads:
        return _stored(name, log, grant, order)
    slots = log.slots
    if order.do == "list":
        return [slot_json(name, slots.info(one), log.token) for one in slots if grant.names_slot(one)]
    for one in (order.name, order.copy_from):
        if one is not None:
            grant.check_slot(one)
    if order.do == "drop":
        slots.drop(order.name)
        return []
    if order.do == "create":
        grant.check_room(log, "slots")
    return [slot_json(name, _done(log, order), log.token)]


def _stored(name: str, log: "ChangeLog", grant: Grant, order: SlotOrder) -> list[SlotInfo]:
    if grant.criteria is not None:
        raise Forbidden(
            "action", "that of a client that may see the whole log, as positions cannot be narrowed"
        )
    consumes = LogAction.CONSUME in grant.actions
    if consumes and order.do == "info":
        grant.check_slot(order.name)
    found = {one.record.name: one for one in stored_slots_of(log)}
    if order.do == "list":
        return [
            stored_slot(name, log, one)
            for called, one in found.items()
            if not consumes or grant.names_slot(called)
        ]
    if order.name not in found:
        raise NoSuchSlot(order.name, found)
    return [stored_slot(name, log, found[order.name])]


def _done(log: "ChangeLog", order: SlotOrder) -> SlotStatistics:
    slots = log.slots
    match order.do:
        case "create":
            where = {"copy_from": order.copy_from} if order.copy_from else {"since": order.start}
            return slots.create(
                order.name, order.criteria, granularity=order.granularity, paused=order.paused, **where
            )
        case "seek":
            return slots.seek(order.name, order.start)
        case "pause":
            slots.pause(order.name)
        case "resume":
            slots.resume(order.name)
        case _:
            pass
    return slots.info(order.name)
