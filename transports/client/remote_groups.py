"""The groups of a remote log: create, inspect, move, pause and drop them, and list their dead letters."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Self

from publishers.criteria.criteria import Criteria, Criterion
from publishers.log.start import Since
from publishers.model.position import Position
from transports.codec.starts import start_json
from transports.operations import groups
from transports.operations.operation import LogOperation

__all__ = ["RemoteGroups"]

_Ask = Callable[[LogOperation[dict[str, Any]]], Awaitable[dict[str, Any]]]
_AT_ONCE = 1_000


class RemoteGroups:
    """The groups of a remote log, for the event loop of its connection: ``RemoteLog.groups``.

    The results are JSON values: ``name``, ``state``, ``cursor``, ``version``, ``generation``, and whether the call has ``changed`` the
    group. A refusal of the server raises ``RemoteError``, with the code ``GROUP_NOT_FOUND``, ``GROUP_EXISTS``, or ``FORBIDDEN`` if the
    grant does not name the group. With ``reconnect``, unanswered requests are sent again after a lost connection: a repeated ``create``
    or ``drop`` may then fail because the first one succeeded.

    Args:
        ask: Sends a request, and returns the answer.
        log: Name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteGroups":
        """The groups of another log of the server."""
        return RemoteGroups(self._ask, log)

    async def create(
        self, name: str, *criteria: Criterion | Criteria, since: Since = None, **options: Any
    ) -> dict[str, Any]:
        """Creates a group; durable when it returns.

        Args:
            name: Its name.
            *criteria: Select its changes; none for all changes.
            since: Its position, as for ``RemoteLog.changes``; the next version by default.
            options: As for ``log.groups.create``.

        Raises:
            InvalidOption: If an argument is invalid; the server checks the options.
        """
        return await self._ask(
            groups.CreateGroup(
                log=self._log,
                name=name,
                criteria=Criteria.of(*criteria).to_json() if criteria else None,
                options=options,
                **start_json(since),
            )
        )

    async def info(self, name: str) -> dict[str, Any]:
        """The statistics of a group, as ``/statistics`` has them: floor, head, consumers, pending, dead, lag and others."""
        return await self._ask(groups.ShowGroup(log=self._log, name=name))

    async def seek(self, name: str, since: Since) -> dict[str, Any]:
        """Moves a group in any state; all its consumers are fenced."""
        return await self._ask(groups.ResetGroup(log=self._log, name=name, **start_json(since)))

    async def pause(self, name: str) -> dict[str, Any]:
        """Stops the deliveries of a group until it is resumed, also over restarts."""
        return await self._ask(groups.PauseGroup(log=self._log, name=name))

    async def resume(self, name: str) -> dict[str, Any]:
        """Resumes a group, also after its breaker has paused it."""
        return await self._ask(groups.ResumeGroup(log=self._log, name=name))

    async def drop(self, name: str) -> None:
        """Drops a group; its dead letters stay."""
        await self._ask(groups.DropGroup(log=self._log, name=name))

    async def pending(self, name: str, limit: int = 100) -> dict[str, Any]:
        """The pending deliveries: ``total``, and ``rows`` of ``at``, ``consumer``, ``generation``, ``idleMs``, ``count``.

        Args:
            name: The group.
            limit: Most rows, up to 1,000.
        """
        return await self._ask(groups.ListPending(log=self._log, name=name, limit=limit))

    async def release(self, name: str, min_idle: float = 0.0) -> int:
        """Takes pending deliveries back from their consumers: they are due at once, for every consumer.

        Args:
            name: The name of the group.
            min_idle: Seconds; only deliveries made at least so long ago.

        Returns:
            Their number, without later deliveries of the same keys, which are taken back too.
        """
        idle = round(min_idle * 1000)
        return int(
            (await self._ask(groups.ReleaseGroup(log=self._log, name=name, min_idle_ms=idle)))["count"]
        )

    def dead_letters(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The dead letters, in the order of their positions, a page at a time."""

        async def read(after: str | None) -> tuple[list[dict[str, Any]], str | None]:
            page = await self._ask(groups.ListDead(log=self._log, name=name, limit=_AT_ONCE, after=after))
            return page["letters"], page["next"]

        return _Pages(read)

    async def discard(self, name: str, positions: Iterable[Position | str] | None = None) -> int:
        """Removes dead letters, durably.

        Args:
            name: The group.
            positions: Their positions, such as ``"42:1"``; None for all.

        Returns:
            The number of removed letters.
        """
        if positions is None:
            return int((await self._ask(groups.DiscardDead(log=self._log, name=name)))["count"])
        wanted, count = [str(one) for one in positions], 0
        for first in range(0, len(wanted), _AT_ONCE):
            part = tuple(wanted[first : first + _AT_ONCE])
            count += (await self._ask(groups.DiscardDead(log=self._log, name=name, positions=part)))["count"]
        return count


class _Pages:
    """Iterates over pages. A generator would end, as if it were complete, when a wait for the next page is cancelled."""

    def __init__(
        self, read: Callable[[str | None], Awaitable[tuple[list[dict[str, Any]], str | None]]]
    ) -> None:
        self._read = read
        self._here: deque[dict[str, Any]] = deque()
        self._after: str | None = None
        self._more = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._here:
            if not self._more:
                raise StopAsyncIteration
            page, self._after = await self._read(self._after)
            self._here.extend(page)
            self._more = self._after is not None
        return self._here.popleft()
