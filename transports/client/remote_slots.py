"""The slots of a remote log: create, inspect, move, pause and drop them."""

from collections.abc import Awaitable, Callable
from typing import Any

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.log.start import Since
from publishers.options import check_switches
from publishers.slots.record import Granularity
from publishers.slots.slots import check_slot_name
from transports.codec.slot_orders import SlotAction, SlotInfo
from transports.codec.starts import start_json

__all__ = ["RemoteSlots"]

_Ask = Callable[[dict[str, Any]], Awaitable[list[SlotInfo]]]


class RemoteSlots:
    """The slots of a remote log that the client may use; ``RemoteLog.slots``. To be called on the loop of the connection.

    The server refuses with ``RemoteError``, whose code is ``SLOT_NOT_FOUND``, ``SLOT_EXISTS``, ``SLOT_BUSY`` if a consumer has the
    slot open and the operation needs it closed, or ``FORBIDDEN`` if the grant does not name the slot. A server that follows the log
    answers `list` and `info` as its owner has stored the slots (``SlotInfo.stored``), and refuses the rest with ``LOG_READ_ONLY``. With ``reconnect``, requests
    that a lost connection left unanswered are sent again: a repeated ``create`` or ``drop`` may then find the slot created or dropped
    by the first.

    Args:
        ask: Sends a request and returns the reply of the server.
        log: The name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteSlots":
        """Returns the slots of another log of the server."""
        return RemoteSlots(self._ask, log)

    async def list(self) -> list[SlotInfo]:
        """Returns the state of all slots that the grant names, in the order of their names."""
        return await self._ask({"do": "list", **self._of_log()})

    async def info(self, name: str) -> SlotInfo:
        """Returns the state of a slot: its position, its lag, and whether its history is retained."""
        return await self._one("info", name)

    async def create(
        self,
        name: str,
        *criteria: Criterion | Criteria,
        since: Since = None,
        copy_from: str | None = None,
        granularity: Granularity = "transaction",
        paused: bool = False,
    ) -> SlotInfo:
        """Creates a slot; durable when it returns.

        Args:
            name: The name of the slot.
            *criteria: The changes that the slot delivers; without, all of them, or with ``copy_from`` those of that slot.
            since: The first position, as for ``RemoteLog.changes``; the next version by default.
            copy_from: A slot whose position is copied instead.
            granularity: ``"change"`` keeps positions inside a transaction; ``"transaction"`` does not.
            paused: Whether the slot delivers nothing until `resume`.

        Raises:
            InvalidOption: If an argument is malformed; the server checks the rest.
        """
        fields: dict[str, Any] = start_json(since)
        if granularity not in ("transaction", "change"):
            raise InvalidOption("granularity", granularity, "'transaction' or 'change'")
        check_switches(paused=paused)
        if paused:
            fields["paused"] = True
        if criteria:
            fields["criteria"] = Criteria.of(*criteria).to_json()
        if copy_from is not None:
            check_slot_name(copy_from)
            fields["copyFrom"] = copy_from
        return await self._one("create", name, granularity=granularity, **fields)

    async def seek(self, name: str, since: Since) -> SlotInfo:
        """Moves a slot that no consumer has open, also a lost one; durable when it returns.

        Args:
            name: The name of the slot.
            since: The new position, as for ``RemoteLog.changes``.
        """
        return await self._one("seek", name, **start_json(since))

    async def pause(self, name: str) -> SlotInfo:
        """Pauses the deliveries of a slot until `resume`, also across restarts of the server."""
        return await self._one("pause", name)

    async def resume(self, name: str) -> SlotInfo:
        """Resumes the deliveries of a paused slot."""
        return await self._one("resume", name)

    async def drop(self, name: str) -> None:
        """Drops a slot that no consumer has open; the log no longer retains history for it."""
        check_slot_name(name)
        await self._ask({"do": "drop", "name": name, **self._of_log()})

    async def _one(self, do: SlotAction, name: str, **fields: Any) -> SlotInfo:
        check_slot_name(name)
        (answer,) = await self._ask({"do": do, "name": name, **self._of_log(), **fields})
        return answer

    def _of_log(self) -> dict[str, str]:
        return {} if self._log is None else {"log": self._log}
