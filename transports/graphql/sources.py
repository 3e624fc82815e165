"""The source of a subscription's events."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flow.bridges.iterators import aiter as iterate
from flow.operators import map as mapping
from publishers.criteria.criteria import Criteria
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.model.change import Change
from publishers.snapshots import SnapshotChange, SnapshotCursor, SnapshotMode
from publishers.views.view import Content, View
from transports.access.access import EVERYBODY
from transports.access.grant import Grant
from transports.codec.groups import JoinRequest
from transports.codec.slots import SlotRequest
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
    """The source of one subscription's events.

    Our connection subscribes to the feed in its own way, in shared batches. The source is also an async iterable, as
    graphql-core requires, so the schema works under other servers too.

    Attributes:
        log: The log.
        criteria: The criteria.
        since: The start position.
        until: The last version; None for no end.
        view: The view of the changes.
        empty: Whether the list of criteria was empty; on the system log an empty list selects nothing.
        jump: Whether to resume behind a gap, and report it.
        whole: Whether to send a transaction from its beginning if the start lies inside it.
        name: The name by which the client knows the log.
        grant: What the principal may do with the log.
        snapshot: When rows are delivered.
        slot: The slot to open, which determines start and criteria; None without one.
        member: The group consumer that joins, whose group determines them; None without one.
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
    slot: SlotRequest | None = None
    member: JoinRequest | None = None

    @property
    def stated(self) -> bool:
        """Whether rows of the current state come first."""
        return asks_for_state(self.since)

    def cursor(self, change: Change) -> str:
        """Returns the cursor behind a change."""
        if isinstance(change, SnapshotChange):
            return self.text(change.cursor)
        return str(self.log.token(change.after))

    def text(self, cursor: SnapshotCursor) -> str:
        """Returns the text of a snapshot cursor for the client; sealed if the grant hides rows."""
        return sealed(cursor) if self.grant.narrow else str(cursor)

    @property
    def reads_disk(self) -> bool:
        """Whether ``feed`` reads the disk, which an event loop must not do."""
        return reads_disk(self.since)

    def feed(self, view: View, prepared: bool = False) -> ChangeFeed:
        """Returns the feed to subscribe to; see ``feed_of``."""
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

    def __aiter__(self) -> AsyncIterator[ChangeEvent]:
        if self.jump:
            raise InvalidRequest("onGap", "JUMP", "FAIL on a server that cannot tell of a gap")
        if self.slot is not None:
            raise InvalidRequest("slot", self.slot.name, "left out on a server that opens no slots")
        if self.member is not None:
            raise InvalidRequest("group", self.member.group, "left out on a server that lets none join")
        events = mapping(lambda change: ChangeEvent.of(change, self.cursor(change)))
        return iterate(events(self.feed(self.view)))
