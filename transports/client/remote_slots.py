"""The slots of a remote log: made, looked at and moved from afar."""

from collections.abc import Awaitable, Callable
from typing import Any

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.log.start import Since
from publishers.options import check_switches
from publishers.slots.record import Granularity
from publishers.slots.slots import check_slot_name
from transports.codec.slot_orders import SlotDeed, SlotTold
from transports.codec.starts import start_json

__all__ = ["RemoteSlots"]

_Ask = Callable[[dict[str, Any]], Awaitable[list[SlotTold]]]


class RemoteSlots:
    """The slots of a remote log that its server lets the client have; ``RemoteLog.slots``. To be used on the loop of the connection.

    What the server refuses is a ``RemoteError``: its code is ``SLOT_NOT_FOUND``, ``SLOT_EXISTS``, ``SLOT_BUSY`` if a consumer has it open
    that must not, ``FORBIDDEN`` if the grant does not name the slot. After a connection that was lost, with ``reconnect``, what was not
    answered is asked again: a second ``create`` or ``drop`` may then find what the first one did.

    Args:
        ask: Has the server answer.
        log: Name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteSlots":
        """Those of another log of the server."""
        return RemoteSlots(self._ask, log)

    async def list(self) -> list[SlotTold]:
        """What they tell of themselves, by their names."""
        return await self._ask({"do": "list", **self._of_log()})

    async def info(self, name: str) -> SlotTold:
        """What one tells of itself: place, lag, and what becomes of its history."""
        return await self._one("info", name)

    async def create(
        self,
        name: str,
        *criteria: Criterion | Criteria,
        start: Since = None,
        copy_from: str | None = None,
        granularity: Granularity = "transaction",
        paused: bool = False,
    ) -> SlotTold:
        """Makes a slot; durable when it returns.

        Args:
            name: Of it.
            *criteria: Which changes; none for all of them, or with ``copy_from`` for those of that.
            start: Its place, as ``since`` of ``RemoteLog.changes``; the next version by default.
            copy_from: A slot whose place is taken instead.
            granularity: ``"change"`` keeps a place inside a transaction.
            paused: Whether it gives nothing until `resume`.

        Raises:
            InvalidOption: If something is not what it must be; the server judges the rest.
        """
        told: dict[str, Any] = start_json(start)
        if granularity not in ("transaction", "change"):
            raise InvalidOption("granularity", granularity, "'transaction' or 'change'")
        check_switches(paused=paused)
        if paused:
            told["paused"] = True
        if criteria:
            told["criteria"] = Criteria.of(*criteria).to_json()
        if copy_from is not None:
            check_slot_name(copy_from)
            told["copyFrom"] = copy_from
        return await self._one("create", name, granularity=granularity, **told)

    async def seek(self, name: str, place: Since) -> SlotTold:
        """Moves a slot that no consumer has open, also one that is lost; durable when it returns.

        Args:
            name: Of the slot.
            place: As ``since`` of ``RemoteLog.changes``.
        """
        return await self._one("seek", name, **start_json(place))

    async def pause(self, name: str) -> SlotTold:
        """Lets a slot give nothing until it is resumed, over restarts too."""
        return await self._one("pause", name)

    async def resume(self, name: str) -> SlotTold:
        """Lets a slot go on."""
        return await self._one("resume", name)

    async def drop(self, name: str) -> None:
        """Drops a slot that no consumer has open; nothing is held for it any more."""
        check_slot_name(name)
        await self._ask({"do": "drop", "name": name, **self._of_log()})

    async def _one(self, do: SlotDeed, name: str, **fields: Any) -> SlotTold:
        check_slot_name(name)
        (told,) = await self._ask({"do": do, "name": name, **self._of_log(), **fields})
        return told

    def _of_log(self) -> dict[str, str]:
        return {} if self._log is None else {"log": self._log}
