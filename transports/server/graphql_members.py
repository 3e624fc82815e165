"""The group consumers of one connection of ``graphql-transport-ws``."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flow.contracts import UNBOUNDED
from publishers.groups import GroupDelivery
from transports.access.principal import Principal
from transports.graphql.execution import GraphQLOperation
from transports.protocol.graphql_ws import OperationEntry
from transports.server.held_members import HeldMembers, MemberSubscriber
from transports.server.member_leases import MemberLease, MemberLeases

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["OperationMembers"]


class _Consumer(MemberSubscriber[OperationEntry]):
    """A consumer that receives the fields that its operation selects."""

    def __init__(self, operation: GraphQLOperation, *known: Any) -> None:
        super().__init__(*known)
        self.operation = operation


class OperationMembers(HeldMembers[_Consumer]):
    """The consumers that subscribe to ``onDelivery``; they acknowledge by mutations.

    Args:
        leases: The consumer leases of the server.
        write: Writes payloads of an operation.
        end: Writes the last message of an operation; the error may be None.
        **serving: As for `HeldMembers`.
    """

    def __init__(
        self,
        leases: MemberLeases,
        *,
        write: Callable[[OperationEntry, Sequence[bytes]], None],
        end: "Callable[[OperationEntry, ChangeLog, Exception | None], None]",
        **serving: Any,
    ) -> None:
        super().__init__(leases, **serving)
        self._send = write
        self._end = end

    def start(
        self,
        entry: OperationEntry,
        operation: GraphQLOperation,
        principal: Principal,
        *,
        lost: Callable[[], bool],
    ) -> None:
        """Joins the consumer of an operation to its group.

        Args:
            entry: The entry of the operation in the protocol machine.
            operation: The operation.
            principal: The principal of the client.
            lost: As for `join`.
        """
        source = operation.source
        request = source.member
        assert request is not None
        request = msgspec.structs.replace(
            request, credits=UNBOUNDED if entry.credits is None else entry.credits
        )
        consumer = _Consumer(operation, self, entry, request, self._lane(), source.name, source.log)
        self.join(consumer, principal, lost=lost)

    def ended(self, consumer: _Consumer, error: Exception | None) -> None:
        """Writes the last message to a consumer."""
        if not consumer.entry.ended:
            self._end(consumer.entry, consumer.log, error)

    def _begin(self, consumer: _Consumer, lease: MemberLease) -> None:
        """Starts the deliveries of a consumer.

        A client that resumes its joining gets its pending deliveries again first, because it does not report which of them
        arrived.
        """
        again = lease.held.begun
        lease.held.begun = True
        feed = lease.held.member.deliveries(
            history=consumer.join_request.history or again, nbytes=consumer.lane.batch_bytes
        )

        def begin(_: object = None) -> None:
            if not consumer.entry.ended:
                feed.subscribe(consumer, executor=consumer.lane)

        if again:
            self._on_thread(consumer, lease.held.member.recall, begin)
        else:
            begin()

    def _write(self, consumer: _Consumer, _: MemberLease, deliveries: Sequence[GroupDelivery]) -> None:
        self._send(consumer.entry, [consumer.operation.delivery(one) for one in deliveries])
