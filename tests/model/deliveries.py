"""What the two threads of a subscription do in `World`: the turns of its drain, and the slices that the replayer gives it."""

from dataclasses import dataclass, replace

from publishers.fanout.ring import BEHIND, Ring
from publishers.fanout.state import Occurrence, Phase, PhaseAction
from publishers.model.position import Position
from tests.model.cursors import Cursor, Thread

__all__ = ["Deliveries", "Plan", "Wrong"]


class Wrong(AssertionError):
    """Something that must never be."""


@dataclass(frozen=True)
class Plan:
    """What happens in a world, in an order of its own.

    Attributes:
        ring: Most changes in the ring.
        old: Versions that are there at the beginning.
        commits: What is published: ``m`` matches, ``f`` does not, ``l`` is too large for the ring, ``d`` matches and
            detaches the publisher, ``a`` attaches it before it matches.
        starts: Where the subscriptions begin.
        acts: What else is done to each: ``1`` requests one change, ``9`` many, ``p`` pauses, ``r`` resumes, ``s`` seeks to
            the first version, ``e`` to the end, ``c`` cancels, ``k`` asks for its checkpoint.
        prunes: How often retention deletes a version.
        jumps: Whether subscriptions go over what is missing, instead of ending there.
        kept: Whether frames may be in memory, so that the drain reads them itself.
        grouped: Whether the committer serves those together that stand at one place, as on ``flow.INLINE``.
        looped: Whether an event loop does, one subscription a turn. The first act of each and the first commit come before
            everything else then, until all is at rest.
    """

    ring: int
    old: int
    commits: str
    starts: tuple[int, ...]
    acts: tuple[str, ...]
    prunes: int = 0
    jumps: bool = False
    kept: bool = False
    grouped: bool = False
    looped: bool = False


class Deliveries:
    """Subscriptions of a ring, and of a log of which retention deletes the oldest versions.

    Attributes:
        plan: What happens.
        ring: The real one.
        cursors: Of the subscriptions.
        versions: What was published, or is being so, by a letter of the plan each.
        visible: The newest version that may be given.
        oldest: The oldest one that is there.
        detached: Whether the publisher is.
        listed: By subscription, the version up to which it has read, if it was detached then: so long it is kept.
    """

    plan: Plan
    ring: Ring
    cursors: list[Cursor]
    versions: str
    visible: int
    oldest: int
    detached: bool
    listed: dict[int, int | None]

    # What the table leaves to ChangeSubscription._move.

    def _move(self, one: Cursor, event: Occurrence, at: int | None = None) -> tuple[PhaseAction, ...] | None:
        """What is left to be done, if the event means something; until a LIST, nobody else can tell when it is done."""
        row = self.ring.move(one, event, None if at is None else Position(at))
        return None if row is None else self._do(one, row.then)

    def _do(self, one: Cursor, actions: tuple[PhaseAction, ...]) -> tuple[PhaseAction, ...]:
        for place, action in enumerate(actions):
            if action is PhaseAction.LIST:
                return actions[place:]
            if action is PhaseAction.ENLIST:
                if one.reading is not None:
                    raise Wrong("it is enlisted twice")
                one.slices += (Thread("begin"),)
            elif action is PhaseAction.SIGNAL:
                one.pending = one.pending or one.phase is not Phase.ENDED
        return ()

    # A turn of a drain, by the steps of ChangeSubscription.pull and outcome.

    def _drain(self, one: Cursor) -> None:
        thread, one.drain = one.drain, Thread()
        match thread.at:
            case "":
                one.drain = self._turn(one)
            case "enter":
                self._move(one, Occurrence.ENTER)
                one.drain = self._turn(one)
            case "poll":
                taken = self.ring.poll(one, thread.upto, one.demand, 2**40)
                if taken is BEHIND:
                    one.drain = Thread("resync")
                elif taken[0]:
                    self._deliver(one, [piece.block.version for piece in taken[0]])
            case "resync":
                if one.phase is Phase.WAITING:
                    self._move(one, Occurrence.ADVANCE)
                if self._move(one, Occurrence.ENTER) is not None:
                    one.drain = Thread("poll", upto=self.visible)
                elif self.plan.kept and not one.live and one.more and one.next.version >= self.oldest:
                    version = one.next.version
                    one.next = Position(version + 1)
                    self._deliver(one, [version] if self.versions[version - 1] == "m" else [])
                else:
                    self._move(one, Occurrence.READ)

    def _turn(self, one: Cursor) -> Thread:
        one.pending = False
        if one.halted:
            self._move(one, Occurrence.END)
            self.listed.pop(self.cursors.index(one), None)
            one.filled = ()
            if one.phase is not Phase.ENDED:
                raise Wrong("it was released and has not ended")
        elif one.phase is Phase.JOINING:
            return Thread()
        elif one.sought is not None:
            one.expects, one.sought, one.filled = one.sought, None, ()
            self._move(one, Occurrence.SEEK, one.expects)
            return Thread("enter")
        elif one.phase is Phase.PAUSED and one.filled:
            first, one.filled = one.filled[0], ()
            self._move(one, Occurrence.SEEK, first)
            return Thread("enter")
        elif one.filled:
            if one.demand and one.phase is not Phase.PAUSED:
                given, one.filled = one.filled[: one.demand], one.filled[one.demand :]
                self._deliver(one, list(given))
        elif not one.live and one.next.version < self.oldest:
            if self.plan.jumps:
                self._jump(one)
            else:
                one.halted = True  # on_error(HistoryPruned)
            one.pending = True
        elif one.phase is not Phase.PAUSED and one.demand and not (one.phase is Phase.LIVE and not one.more):
            return Thread("poll", upto=self.visible)
        return Thread()

    def _jump(self, one: Cursor) -> None:
        one.expects = max(one.expects, self.oldest)
        self._move(one, Occurrence.SEEK, self.oldest)

    def _deliver(self, one: Cursor, versions: list[int]) -> None:
        for version in versions:
            due = self.versions.find("m", one.expects - 1) + 1
            if one.phase is Phase.ENDED or version > self.visible:
                raise Wrong(f"{version} is given to one that has ended, or is not visible")
            if version != due:
                raise Wrong(f"{version} is given, where {due} is due")
            one.expects = version + 1
            one.demand -= 1
        if one.demand < 0:
            raise Wrong("more is given than was requested")
        one.pending = True

    # A slice, by the steps of ChangeSubscription.replay.

    def _slice(self, one: Cursor, place: int) -> None:
        thread = one.slices[place]
        before, after = one.slices[:place], one.slices[place + 1 :]
        one.slices = (*before, *after)
        now = self._read(one, thread)
        if now is not None:
            one.slices = (*one.slices, now)

    def _read(self, one: Cursor, thread: Thread) -> Thread | None:
        match thread.at:
            case "begin":
                if not one.demand or one.sought is not None or one.held or one.halted:
                    return self._back(one, Occurrence.REST)
                if self._move(one, Occurrence.ENTER) is not None:
                    return None
                return Thread("park" if one.next.version > self.visible else "join", self.visible)
            case "park":
                return self._back(one, Occurrence.PARK)
            case "join":
                self._move(one, Occurrence.JOIN, thread.upto + 1)
                if one.next.version < self.oldest:
                    if self.plan.jumps:
                        self._jump(one)
                    else:
                        one.halted = one.pending = True
                elif one.phase is Phase.JOINING:
                    version = one.next.version
                    one.filled = (version,) if self.versions[version - 1] == "m" else ()
                    one.next = Position(version + 1)
                return replace(thread, at="end")
            case "end":
                if one.next.version > thread.upto and self._move(one, Occurrence.ENTER) is not None:
                    return None
                if one.filled or one.halted:
                    return self._back(one, Occurrence.REST)
                self._move(one, Occurrence.YIELD)
                return Thread("begin")
            case _:
                self.listed[self.cursors.index(one)] = one.next.version - 1 if self.detached else None
                self._do(one, thread.todo[1:])
                return self._over(one)

    def _back(self, one: Cursor, event: Occurrence) -> Thread | None:
        left = self._move(one, event)
        return Thread("over", todo=left) if left else self._over(one)

    def _over(self, one: Cursor) -> None:
        if one.phase is Phase.ENDED:
            one.filled = ()
            self.listed.pop(self.cursors.index(one), None)
