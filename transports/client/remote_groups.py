"""The groups of a remote log: made, looked at and moved from afar, and what became of their dead letters."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from publishers.criteria.criteria import Criteria, Criterion
from publishers.log.start import Since
from publishers.model.position import Position
from publishers.slots.slots import check_slot_name
from transports.codec.group_orders import GroupDeed
from transports.codec.starts import start_json

__all__ = ["RemoteGroups"]

_Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_AT_ONCE = 1_000


class RemoteGroups:
    """The groups of a remote log that its server lets the client use; ``RemoteLog.groups``. To be used on the loop of the connection.

    What is answered is as it travels: ``name``, ``state``, ``cursor``, ``version``, ``generation``, and whether it has ``changed``. What the
    server refuses is a ``RemoteError``: its code is ``GROUP_NOT_FOUND``, ``GROUP_EXISTS``, ``FORBIDDEN`` if the grant does not name the
    group. After a connection that was lost, with ``reconnect``, what was not answered is asked again: a second ``create`` or ``drop`` may
    then find what the first one did.

    Args:
        ask: Has the server answer.
        log: Name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteGroups":
        """Those of another log of the server."""
        return RemoteGroups(self._ask, log)

    async def create(
        self, name: str, *criteria: Criterion | Criteria, start: Since = None, **options: Any
    ) -> dict[str, Any]:
        """Makes a group; durable when it returns.

        Args:
            name: Of it.
            *criteria: Which changes; none for all of them.
            start: Its place, as ``since`` of ``RemoteLog.changes``; the next version by default.
            options: As for ``log.groups.create``.

        Raises:
            InvalidOption: If something is not what it must be; the server judges the rest.
        """
        fields: dict[str, Any] = {**start_json(start), "options": options}
        if criteria:
            fields["criteria"] = Criteria.of(*criteria).to_json()
        return await self._one("create", name, **fields)

    async def reset(self, name: str, place: Since) -> dict[str, Any]:
        """Moves a group, whatever has become of it; all its consumers are fenced."""
        return await self._one("reset", name, **start_json(place))

    async def pause(self, name: str) -> dict[str, Any]:
        """Lets a group give nothing until it is resumed, over restarts too."""
        return await self._one("pause", name)

    async def resume(self, name: str) -> dict[str, Any]:
        """Lets a group go on, also after its breaker has paused it."""
        return await self._one("resume", name)

    async def drop(self, name: str) -> None:
        """Drops a group; its dead letters stay."""
        await self._one("drop", name)

    async def pending(self, name: str, limit: int = 100) -> dict[str, Any]:
        """What was delivered and is not acknowledged: ``total``, and ``rows`` of ``at``, ``consumer``, ``generation``, ``idleMs``, ``count``.

        Args:
            name: Of the group.
            limit: Most rows, up to 1,000.
        """
        return await self._one("pending", name, limit=limit)

    async def dead_letters(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The dead letters, in the order of their positions, a page at a time."""
        after = None
        while True:
            page = await self._one("dead", name, limit=_AT_ONCE, after=after)
            for letter in page["letters"]:
                yield letter
            after = page["next"]
            if after is None:
                return

    async def discard(self, name: str, positions: Iterable[Position | str] | None = None) -> int:
        """Takes dead letters away, durably.

        Args:
            name: Of the group.
            positions: Which, such as ``"42:1"``; None for all.

        Returns:
            How many were there.
        """
        if positions is None:
            return int((await self._one("discard", name))["count"])
        wanted, count = [str(one) for one in positions], 0
        for first in range(0, len(wanted), _AT_ONCE):
            part = wanted[first : first + _AT_ONCE]
            count += int((await self._one("discard", name, positions=part))["count"])
        return count

    async def _one(self, do: GroupDeed, name: str, **fields: Any) -> dict[str, Any]:
        check_slot_name(name)
        log = {} if self._log is None else {"log": self._log}
        return await self._ask({"do": do, "name": name, **log, **fields})
