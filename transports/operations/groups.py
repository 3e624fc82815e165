"""Operations on groups, for clients that have not joined them."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.groups import ConsumerGroup, GroupSettings, GroupStatistics
from publishers.model.position import Position
from transports.codec.fields import Name
from transports.codec.figures import group_json
from transports.codec.groups import IdleMs, letter_json, pending_json
from transports.codec.starts import place_of
from transports.operations.operation import Family, LogOperation, Target

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "GROUPS",
    "CreateGroup",
    "DiscardDead",
    "DropGroup",
    "GroupOperation",
    "ListDead",
    "ListPending",
    "PauseGroup",
    "ReleaseGroup",
    "ResetGroup",
    "ResumeGroup",
    "ShowGroup",
]

_MOST: Final = 1_000
_MOST_BYTES: Final = 1 << 20
_Limit = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
_Letter = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{1,18}:[0-9]{1,18}(?![\s\S])",
        description="a position of a dead letter, such as '42:1'",
    ),
]


class GroupOperation(LogOperation[dict[str, Any]], frozen=True, kw_only=True):
    """An operation on one group; its answer is JSON.

    Attributes:
        name: The name of the group.
    """

    message: ClassVar[str] = "groups"
    name: Name

    def run(self, target: Target, /) -> dict[str, Any]:
        """Carries it out, if the grant names the group."""
        target.grant.check_group(self.name)
        return self.do(target, target.log.groups.open(self.name))

    @abstractmethod
    def do(self, target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Carries it out on the group, for a client that may use it."""
        ...


class ListPending(GroupOperation, frozen=True, kw_only=True, tag="pending"):
    """Lists the deliveries that are not acknowledged, and their number in all.

    Attributes:
        limit: The most rows.
    """

    limit: _Limit = 100

    def do(self, target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Lists them."""
        rows = group.pending_rows(limit=self.limit)
        return {"total": group.pending().total, "rows": pending_json(rows, target.log.token)}


class ShowGroup(GroupOperation, frozen=True, kw_only=True, tag="info"):
    """Shows the statistics of a group, as ``/statistics`` has them."""

    def do(self, target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Shows them."""
        return {"log": target.name, "name": self.name, **group_json(target.log, group.info())}


class CreateGroup(LogOperation[dict[str, Any]], frozen=True, kw_only=True, tag="create"):
    """Creates a group, durably.

    Attributes:
        name: The name of the group.
        since: A cursor at which the group begins.
        start: Another start position; the next version if neither is given.
        criteria: The changes of the group; None for all.
        options: The options of the group, as for ``log.groups.create``.
    """

    message: ClassVar[str] = "groups"
    name: Name
    since: str | None = None
    start: Any = None
    criteria: list[Any] | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Checks position, criteria and options."""
        place_of(self.since, self.start)
        Criteria.from_json(self.criteria or [])
        GroupSettings.chosen(self.options)

    def run(self, target: Target, /) -> dict[str, Any]:
        """Creates it, if the grant names it and has room."""
        name, log, grant = target
        grant.check_group(self.name)
        grant.check_room(log, "groups")
        criteria = None if self.criteria is None else Criteria.from_json(self.criteria)
        options = msgspec.structs.asdict(GroupSettings.chosen(self.options))
        group = log.groups.create(self.name, criteria, since=place_of(self.since, self.start), **options)
        return _outcome(name, log, group.info(), changed=True)


class ResetGroup(GroupOperation, frozen=True, kw_only=True, tag="reset"):
    """Moves a group in any state; all its consumers are fenced.

    Attributes:
        since: A cursor, the new position.
        start: Another new position; the next version if neither is given.
    """

    since: str | None = None
    start: Any = None

    def check(self) -> None:
        """Checks the position."""
        place_of(self.since, self.start)

    def do(self, target: Target, _group: ConsumerGroup, /) -> dict[str, Any]:
        """Moves it."""
        moved = target.log.groups.seek(self.name, place_of(self.since, self.start))
        return _outcome(target.name, target.log, moved, changed=True)


class PauseGroup(GroupOperation, frozen=True, kw_only=True, tag="pause"):
    """Stops the deliveries of a group until it is resumed, also over restarts."""

    def do(self, target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Stops them."""
        return _switched(target, group, changed=group.pause())


class ResumeGroup(GroupOperation, frozen=True, kw_only=True, tag="resume"):
    """Resumes a group, also after its breaker has paused it."""

    def do(self, target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Resumes it."""
        return _switched(target, group, changed=group.resume())


class DropGroup(GroupOperation, frozen=True, kw_only=True, tag="drop"):
    """Drops a group; its dead letters stay."""

    def do(self, target: Target, _group: ConsumerGroup, /) -> dict[str, Any]:
        """Drops it."""
        target.log.groups.drop(self.name)
        return {"log": target.name, "name": self.name}


class ListDead(GroupOperation, frozen=True, kw_only=True, tag="dead"):
    """Lists a page of dead letters, in the order of their positions; at least one if there is one.

    Attributes:
        limit: The most letters.
        after: Only letters behind this position.
    """

    limit: _Limit = 100
    after: _Letter | None = None

    def do(self, _target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Lists them."""
        after = None if self.after is None else _position(self.after)
        found: list[msgspec.Raw] = []
        nbytes = 0
        last = None
        for letter in group.dead.inspect():
            if after is not None and letter.position <= after:
                continue
            encoded = msgspec.json.encode(letter_json(letter))
            nbytes += len(encoded)
            if found and (len(found) >= self.limit or nbytes > _MOST_BYTES):
                return {"letters": found, "next": str(last)}
            found.append(msgspec.Raw(encoded))
            last = letter.position
        return {"letters": found, "next": None}


class DiscardDead(GroupOperation, frozen=True, kw_only=True, tag="discard"):
    """Removes dead letters, durably; answers how many.

    Attributes:
        positions: The positions of the letters; None for all letters.
    """

    positions: (
        Annotated[
            tuple[_Letter, ...],
            msgspec.Meta(
                max_length=_MOST, description=f"a list of at most {_MOST} positions, such as '42:1'"
            ),
        ]
        | None
    ) = None

    def do(self, _target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Removes them."""
        wanted = None if self.positions is None else [_position(one) for one in self.positions]
        return {"count": group.dead.discard(wanted)}


class ReleaseGroup(GroupOperation, frozen=True, kw_only=True, tag="release"):
    """Takes pending deliveries back from their consumers; answers how many: they are due at once, for every consumer.

    Attributes:
        min_idle_ms: Only deliveries made at least this many milliseconds ago.
    """

    min_idle_ms: IdleMs = 0

    def do(self, _target: Target, group: ConsumerGroup, /) -> dict[str, Any]:
        """Takes them back."""
        return {"count": group.release(self.min_idle_ms / 1000)}


GROUPS: Final = Family(
    ListPending,
    ShowGroup,
    CreateGroup,
    ResetGroup,
    PauseGroup,
    ResumeGroup,
    DropGroup,
    ListDead,
    DiscardDead,
    ReleaseGroup,
)
"""The operations of the message ``groups``."""


def _position(text: str) -> Position:
    version, index = text.split(":")
    return Position(int(version), int(index))


def _switched(target: Target, group: ConsumerGroup, *, changed: bool) -> dict[str, Any]:
    return _outcome(target.name, target.log, group.info(), changed=changed)


def _outcome(name: str, log: "ChangeLog", statistics: GroupStatistics, *, changed: bool) -> dict[str, Any]:
    return {
        "log": name,
        "name": statistics.name,
        "state": statistics.state.value,
        "cursor": str(log.token(statistics.floor)),
        "version": statistics.floor.version,
        "generation": statistics.generation,
        "changed": changed,
    }
