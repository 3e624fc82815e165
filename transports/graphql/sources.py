"""Where the events of a subscription come from."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flow.bridges.asyncio import aiter as iterate
from publishers.criteria.criteria import Criteria
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.model.change import Change
from publishers.snapshots import SnapshotChange, SnapshotCursor, SnapshotMode
from publishers.views.view import Content, View
from transports.access.access import EVERYBODY
from transports.access.grant import Grant
from transports.codec.groups import JoinWish
from transports.codec.slots import SlotWish
from transports.codec.snapshot_places import sealed
from transports.codec.starts import asks_for_state, feed_of, reads_disk
from transports.errors import InvalidRequest
from transports.graphql.types import ChangeEvent

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["OperationSource"]

_BODY: Final = View(Content.BODY)


@dataclass(frozen=True, slots=True)
class OperationSource:
    """Where the events of one subscription come from.

    Our connection subscribes to its feed in its own way, batch by batch and shared. To be what graphql-core takes for a
    source it can be iterated too, so the schema also works under other servers.

    Attributes:
        log: The log.
        criteria: Which changes.
        since: Where to begin.
        until: The last version, or None.
        view: How changes are seen.
        empty: Whether the list of criteria was empty: on the system log that means nothing.
        jump: Whether to go on behind a gap, and tell of it.
        whole: Whether to send a transaction inside which it begins from its beginning.
        name: What the client knows the log by.
        grant: What the principal may do with it.
        snapshot: When the entities that there are come.
        slot: The slot that is opened, which says where it begins and which changes; None for none.
        member: The consumer of a group that joins, which says likewise; None for none.
    """

    log: "ChangeLog"
    criteria: Criteria
    since: Since
    until: int | None
    view: View = _BODY
    empty: bool = False
    jump: bool = False
    whole: bool = False
    name: str = ""
    grant: Grant = EVERYBODY
    snapshot: SnapshotMode | None = None
    slot: SlotWish | None = None
    member: JoinWish | None = None

    @property
    def stated(self) -> bool:
        """Whether the entities that there are come first."""
        return asks_for_state(self.since)

    def cursor(self, change: Change) -> str:
        """The place behind a change."""
        if isinstance(change, SnapshotChange):
            return self.text(change.cursor)
        return str(self.log.token(change.after))

    def text(self, cursor: SnapshotCursor) -> str:
        """A place in a snapshot as the client gets it."""
        return sealed(cursor) if self.grant.narrow else str(cursor)

    @property
    def reads_disk(self) -> bool:
        """Whether ``feed`` reads the disk, which is not for an event loop."""
        return reads_disk(self.since)

    def feed(self, view: View, prepared: bool = False) -> ChangeFeed:
        """What is subscribed to; see ``feed_of``."""
        criteria = () if self.empty else self.criteria
        since, until = self.since, self.until
        return feed_of(
            self.log,
            criteria,
            since,
            until,
            view,
            whole=self.whole,
            jump=self.jump,
            prepared=prepared,
            snapshot=self.snapshot,
        )

    async def __aiter__(self) -> AsyncIterator[ChangeEvent]:
        if self.jump:
            raise InvalidRequest("onGap", "JUMP", "FAIL on a server that cannot tell of a gap")
        if self.slot is not None:
            raise InvalidRequest("slot", self.slot.name, "left out on a server that opens no slots")
        if self.member is not None:
            raise InvalidRequest("group", self.member.group, "left out on a server that lets none join")
        async with iterate(self.feed(self.view)) as changes:
            async for change in changes:
                yield ChangeEvent.of(change, self.cursor(change))
