"""The state that all connections of a Redis protocol port share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from publishers.errors import PenstockError
from publishers.options import MIB
from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.principal import Credentials, Principal
from transports.errors import Unauthenticated
from transports.limits import Limits
from transports.quotas.pool import Pools, Turn
from transports.quotas.weight import ServerWeight
from transports.resp.client import RespClient
from transports.resp.group_members import GroupMembers
from transports.resp.held_bytes import HeldBytes

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "RESP_ARGUMENTS",
    "RESP_BLOCK",
    "RESP_CONSUMERS",
    "RESP_EVENTS",
    "RESP_REPLY_BYTES",
    "HoldingConnection",
    "RespPort",
]

RESP_ARGUMENTS: Final = 10_000
"""Most arguments of a command, its name included, and of all commands of a transaction; 10 for a client that is not authenticated. An argument
costs more memory than its bytes."""

RESP_EVENTS: Final = 10_000
"""Most events, or rows, of one reply; the client asks again for more."""

RESP_REPLY_BYTES: Final = 4 * MIB
"""Bytes of changes after which a reply to a poll ends; a single larger record is sent alone."""

RESP_CONSUMERS: Final = 10_000
"""Most group consumers that a port keeps; the one idle longest has to join again, at no cost to it."""

RESP_BLOCK: Final = 60.0
"""Longest time in seconds that a command waits, whatever it asks for: a client that is gone for good is noticed by then."""

_T = TypeVar("_T")
_PREFIX: Final = "stream:"
_LEAST: Final = 64 * 1024  # bytes of a page if clients accept their replies too slowly
_SHARE: Final = 4  # the fraction of the remaining budget that one reply may use


class HoldingConnection(Protocol):
    """A connection, as far as it makes the server hold bytes; see ``RespConnection``."""

    @property
    def unfinished(self) -> int:
        """Bytes that have arrived and are not answered yet."""

    @property
    def unsent(self) -> int:
        """Bytes of replies that the kernel has not accepted."""

    @property
    def address(self) -> str | None:
        """The address of the client."""

    def overload(self) -> None:
        """Aborts the connection."""


class RespPort:
    """The logs, access rights and costs of a port.

    Args:
        logs: The logs by name.
        access: Authenticates clients and authorises actions.
        limits: The bounds.
        pools: The threads for disk reads.

    Attributes:
        logs: As the argument.
        access: As the argument.
        limits: As the argument.
        weight: The weight of the criteria of all waiting commands.
        commands: The number of answers by command.
        errors: The number of errors by code.
        members: The group consumers that clients address.
        waiting: The number of commands that wait for a change.
        unfinished: The bytes of commands that are not answered yet.
        unsent: The bytes of replies that clients have not accepted yet.
    """

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        limits: Limits,
        pools: Pools,
    ) -> None:
        self.logs = logs
        self.access = access
        self.limits = limits
        self.weight: ServerWeight = ServerWeight(limits.criteria_weight)
        self.commands: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.members: GroupMembers = GroupMembers(RESP_CONSUMERS)
        self.waiting: int = 0
        self.unfinished: HeldBytes[HoldingConnection] = HeldBytes(
            limits.resp_input_bytes,
            lambda one: one.unfinished,
            lambda one: one.address,
            lambda one: one.overload(),
        )
        self.unsent: HeldBytes[HoldingConnection] = HeldBytes(
            limits.resp_output_bytes,
            lambda one: one.unsent,
            lambda one: one.address,
            lambda one: one.overload(),
        )
        self._pools = pools

    @property
    def page_bytes(self) -> int:
        """The bytes after which a page of changes ends, given the unsent bytes."""
        left = self.limits.resp_output_bytes - self.unsent.total
        if left < _SHARE * RESP_REPLY_BYTES:
            left = self.limits.resp_output_bytes - self.unsent.measured()
        return max(min(_LEAST, RESP_REPLY_BYTES), min(left // _SHARE, RESP_REPLY_BYTES))

    async def principal(self, client: RespClient) -> Principal:
        """Returns the principal of a client; authenticates again if the access data have changed.

        Raises:
            Unauthenticated: If the client is not authenticated, or its principal has expired.
            NotAuthenticated: If authentication takes longer than the timeout.
        """
        revision, known = self.access.revision, client.principal
        if known is not None and client.revision == revision and not self.access.expired(known):
            return known
        client.principal = None
        client.principal = await self.judge(client, client.token)
        client.revision = revision
        return client.principal

    async def judge(self, client: RespClient, token: str | None) -> Principal:
        """Authenticates a client by a token, or by its certificate alone; counts refusals. Raises as `principal`."""
        try:
            return await self.access.principal(
                Credentials(token=token, peer_certificate=client.peer_certificate, client=client.address)
            )
        except Unauthenticated:
            client.refusals += 1
            raise

    async def find(
        self, client: RespClient, key: str | None, action: LogAction = LogAction.READ
    ) -> "tuple[str, ChangeLog, Grant]":
        """Finds the log of a key: its name, optionally prefixed with ``stream:``; None for the only log.

        Raises:
            Unauthenticated, NotAuthenticated: As `principal`.
            Forbidden: If the action is not allowed.
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
        """Runs work on a thread and returns its result; if the caller is cancelled, the work ends at its next step.

        Raises:
            TooCostly: If too much work waits for a thread.
            GoingAway: If the server is stopping.
        """
        turn = self._pools.scanning.submit(client.address, work, payer=client.payer)
        try:
            return await asyncio.wrap_future(turn.result)
        finally:
            turn.cancel()

    async def take(self, client: RespClient, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        """As `scan`; if the client leaves before the result is there, the result is undone, on a thread too."""
        turn = self._pools.scanning.submit(client.address, lambda _: work(), payer=client.payer)

        def done(result: "Future[_T]") -> None:
            if not result.cancelled() and result.exception() is None:
                found = result.result()
                try:
                    self._pools.scanning.submit(client.address, lambda _: undo(found))
                except PenstockError:  # the server is stopping, or too much work waits
                    undo(found)

        try:
            return await asyncio.wrap_future(turn.result)
        except asyncio.CancelledError:
            turn.cancel()
            turn.result.add_done_callback(done)
            raise

    def until(self, client: RespClient, millis: int) -> float:
        """Returns the time of the event loop until which a command may wait: now, if it is one of a transaction."""
        waits = 0.0 if client.transaction is not None else min(millis / 1000, RESP_BLOCK)
        return asyncio.get_running_loop().time() + waits

    async def wait(self, client: RespClient, event: asyncio.Event, until: float) -> None:
        """Waits for an event until a time of the event loop, as long as the client may send more."""
        if client.ended:  # the client ended while the command was prepared
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
        """Returns the counts of answers and of waiting commands."""
        return {
            "commands": dict(self.commands),
            "errors": dict(self.errors),
            "waiting": self.waiting,
            "consumers": len(self.members),
            "criteriaWeight": self.weight.weight,
            "unfinishedBytes": self.unfinished.total,
            "limits": {
                "consumers": RESP_CONSUMERS,
                "unsentBytes": self.limits.resp_output_bytes,
                "unfinishedBytes": self.limits.resp_input_bytes,
            },
            "threads": self._pools.statistics(),
        }
