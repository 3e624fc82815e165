"""Carries out the orders of clients for slots that they have not opened."""

from typing import TYPE_CHECKING

from publishers.slots.statistics import SlotStatistics
from transports.access.grant import Grant
from transports.codec.slot_orders import SlotOrder, SlotTold, slot_json

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["carry_out"]


def carry_out(name: str, log: "ChangeLog", grant: Grant, order: SlotOrder) -> list[SlotTold]:
    """Carries out an order; writes to the disk, on the calling thread.

    Args:
        name: The name of the log, as the client knows it.
        log: The log of the slots.
        grant: The grant of the client, which names the slots that it may use.
        order: The order of the client.

    Returns:
        The state of the slots after the order; empty after ``drop``.

    Raises:
        Forbidden: If the grant does not name the slot.
        PenstockError: If the order cannot be carried out.
    """
    slots = log.slots
    if order.do == "list":
        return [slot_json(name, slots.info(one), log.token) for one in slots if grant.names_slot(one)]
    for one in (order.name, order.copy_from):
        if one is not None:
            grant.check_slot(one)
    if order.do == "drop":
        slots.drop(order.name)
        return []
    return [slot_json(name, _done(log, order), log.token)]


def _done(log: "ChangeLog", order: SlotOrder) -> SlotStatistics:
    slots = log.slots
    match order.do:
        case "create":
            where = {"copy_from": order.copy_from} if order.copy_from else {"start": order.start}
            return slots.create(
                order.name, order.criteria, granularity=order.granularity, paused=order.paused, **where
            )
        case "seek":
            return slots.reset(order.name, order.start)
        case "pause":
            slots.pause(order.name)
        case "resume":
            slots.resume(order.name)
        case _:
            pass
    return slots.info(order.name)
