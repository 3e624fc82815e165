"""The slots of a remote log: create, inspect, move, pause and drop them."""

from collections.abc import Awaitable, Callable

from publishers.criteria.criteria import Criteria, Criterion
from publishers.log.start import Since
from publishers.slots.record import Granularity
from transports.codec.slots import SlotInfo
from transports.codec.starts import start_json
from transports.operations import slots
from transports.operations.operation import LogOperation

__all__ = ["RemoteSlots"]

_Slots = list[SlotInfo]
_Ask = Callable[[LogOperation[_Slots]], Awaitable[_Slots]]


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
        return await self._ask(slots.ListSlots(log=self._log))

    async def info(self, name: str) -> SlotInfo:
        """Returns the state of a slot: its position, its lag, and whether its history is retained."""
        return await self._one(slots.ShowSlot(log=self._log, name=name))

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
        return await self._one(
            slots.CreateSlot(
                log=self._log,
                name=name,
                criteria=Criteria.of(*criteria).to_json() if criteria else None,
                granularity=granularity,
                copy_from=copy_from,
                paused=paused,
                **start_json(since),
            )
        )

    async def seek(self, name: str, since: Since) -> SlotInfo:
        """Moves a slot that no consumer has open, also a lost one; durable when it returns.

        Args:
            name: The name of the slot.
            since: The new position, as for ``RemoteLog.changes``.
        """
        return await self._one(slots.SeekSlot(log=self._log, name=name, **start_json(since)))

    async def pause(self, name: str) -> SlotInfo:
        """Pauses the deliveries of a slot until `resume`, also across restarts of the server."""
        return await self._one(slots.PauseSlot(log=self._log, name=name))

    async def resume(self, name: str) -> SlotInfo:
        """Resumes the deliveries of a paused slot."""
        return await self._one(slots.ResumeSlot(log=self._log, name=name))

    async def drop(self, name: str) -> None:
        """Drops a slot that no consumer has open; the log no longer retains history for it."""
        await self._ask(slots.DropSlot(log=self._log, name=name))

    async def _one(self, operation: LogOperation[_Slots]) -> SlotInfo:
        (answer,) = await self._ask(operation)
        return answer
