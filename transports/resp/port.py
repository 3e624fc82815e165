"""What all connections of a port of the Redis protocol share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from publishers.errors import PenstockError
from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.principal import Credentials, Principal
from transports.errors import Unauthenticated
from transports.limits import Limits
from transports.quotas.pool import Pools, Turn
from transports.quotas.weight import ServerWeight
from transports.resp.client import RespClient
from transports.resp.group_members import GroupMembers

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["RespPort"]

_T = TypeVar("_T")
_PREFIX: Final = "stream:"
_LEAST: Final = 64 * 1024  # bytes of a page where clients take their replies too slowly
_SHARE: Final = 4  # the part of what is left that one reply may have


class RespPort:
    """Logs, who may use them, and what that may cost.

    Args:
        logs: By their names.
        access: Who is let in, and what each may do.
        limits: Bounds.
        pools: Threads for what may read the disk.
        unsent: Tells how many bytes of replies clients have not taken.

    Attributes:
        logs: Likewise.
        access: Likewise.
        limits: Likewise.
        weight: What the criteria of all commands that wait weigh.
        commands: How often each command was answered.
        errors: How often each word of an error was told.
        members: The consumers of groups that clients speak of.
        waiting: How many commands wait for a change.
    """

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        limits: Limits,
        pools: Pools,
        unsent: Callable[[], int],
    ) -> None:
        self.logs = logs
        self.access = access
        self.limits = limits
        self.weight = ServerWeight(limits.criteria_weight)
        self.commands: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.members = GroupMembers(limits.resp_consumers)
        self.waiting = 0
        self._pools = pools
        self._unsent = unsent

    @property
    def page_bytes(self) -> int:
        """Bytes after which a page of changes ends now."""
        left = self.limits.resp_output_bytes - self._unsent()
        return max(
            min(_LEAST, self.limits.resp_reply_bytes), min(left // _SHARE, self.limits.resp_reply_bytes)
        )

    async def principal(self, client: RespClient) -> Principal:
        """Who a client is; found out again when what tells that has changed.

        Raises:
            Unauthenticated: If it has not shown that, or its time is over.
            NotAuthenticated: If it was not found out in time.
        """
        revision, known = self.access.revision, client.principal
        if known is not None and client.revision == revision and not self.access.expired(known):
            return known
        client.principal = None
        client.principal = await self.judge(client, client.token)
        client.revision = revision
        return client.principal

    async def judge(self, client: RespClient, token: str | None) -> Principal:
        """Who a client is that shows a token, or nothing but its certificate. Errors are those of `principal`."""
        return await self.access.principal(
            Credentials(token=token, peer_certificate=client.peer_certificate, client=client.address)
        )

    async def find(
        self, client: RespClient, key: str | None, action: LogAction = LogAction.READ
    ) -> "tuple[str, ChangeLog, Grant]":
        """The log that a key means: its name, also behind ``stream:``; None for the only one.

        Raises:
            Unauthenticated, NotAuthenticated: As `principal`.
            Forbidden: If the client may not do that.
            LogNotFound: If there is no such log.
        """
        principal = await self.principal(client)
        name = key
        if key is not None and key not in self.logs:
            name = key.removeprefix(_PREFIX)
        try:
            return self.access.find(self.logs, name, principal, action)
        except Unauthenticated:
            client.principal = None
            raise

    async def scan(self, client: RespClient, work: Callable[[Turn[_T]], _T]) -> _T:
        """What some work on a thread returns; what is not wanted any more ends at its next step.

        Raises:
            TooCostly: If too much waits for a thread.
            GoingAway: If the server stops.
        """
        turn = self._pools.scanning.submit(client.address, work)
        try:
            return await asyncio.wrap_future(turn.result)
        finally:
            turn.cancel()

    async def take(self, client: RespClient, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        """As `scan`; if the client leaves before the result is there, that is undone, on a thread too."""
        turn = self._pools.scanning.submit(client.address, lambda _: work())

        def done(result: "Future[_T]") -> None:
            if not result.cancelled() and result.exception() is None:
                found = result.result()
                try:
                    self._pools.scanning.submit(client.address, lambda _: undo(found))
                except PenstockError:  # the server stops, or too much waits
                    undo(found)

        try:
            return await asyncio.wrap_future(turn.result)
        except asyncio.CancelledError:
            turn.cancel()
            turn.result.add_done_callback(done)
            raise

    async def wait(self, client: RespClient, event: asyncio.Event, until: float) -> None:
        """Waits for an event, up to a time of the event loop; as long as the client may say more."""
        if client.ended:  # while what it asked was prepared
            return
        self.waiting += 1
        abandoned, client.abandons = client.abandons, True
        try:
            async with asyncio.timeout_at(until):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            client.abandons = abandoned
            self.waiting -= 1

    def statistics(self) -> dict[str, Any]:
        """What was answered, and what waits."""
        return {
            "commands": dict(self.commands),
            "errors": dict(self.errors),
            "waiting": self.waiting,
            "consumers": len(self.members),
            "criteriaWeight": self.weight.weight,
            "limits": {
                "consumers": self.limits.resp_consumers,
                "unsentBytes": self.limits.resp_output_bytes,
            },
            "threads": self._pools.statistics(),
        }
