"""A small log of which every step may come at any time: the real table of states and the real ring, the rest as a model.

A step is what one thread does between two looks at what others change. A world is copied before each step, so that all
orders can be tried from it. A committer publishes what its plan says; two subscriptions have a drain each; the replayer
gives each that is enlisted a slice; subscribers request, seek and cancel, an operator pauses and resumes, somebody asks for the
progress of a subscription, and retention deletes the oldest version, whenever they like and as often as the plan allows.
"""

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from publishers.fanout.bench import Bench, RingCursor, Round
from publishers.fanout.chunk import Ahead, Chunk
from publishers.fanout.ring import BEHIND, Ring
from publishers.fanout.state import Occurrence, Phase, PhaseAction
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.position import Position
from tests.model.cursors import KIND, Cursor, Owner, Piece, Thread

__all__ = ["Plan", "World", "Wrong"]

_FIELDS: Final = ("next", "phase", "held", "place", "location", "group", "kind", "bench")
_BENCH: Final = ("credit", "serving", "_lock", "_again")


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


class World:
    """One state of everything."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.visible = plan.old
        self.versions = "m" * plan.old  # what was published, or is being so
        self.oldest = 1
        self.pruned = 0
        self.committer = ""
        self.overtaken: tuple[int, ...] = ()
        self.place: int | None = None
        self.ahead: Ahead | None = None
        self.bench: Bench | None = None
        self.noted: int | None = None  # the place from which a round of the loop shall begin
        self.round: Round | None = None  # that of the loop, between its turns too
        self.lent: tuple[int, ...] = ()
        self.detached = False
        # By subscription, the version up to which it has read, if it was detached then: so long it is kept.
        self.listed: dict[int, int | None] = {}
        self.advanced = False
        self.ring = Ring(Position(plan.old + 1), max_events=plan.ring, max_bytes=2**40)
        self.cursors = []
        for start, acts in zip(plan.starts, plan.acts, strict=True):
            one = Cursor(Position(start), kind=KIND)
            one.owner, one.world = Owner(one), self
            one.acts, one.demand, one.expects = acts, 0, start
            one.drain, one.slices = Thread(), ()
            one.filled, one.sought, one.pending, one.halted = (), None, False, False
            self.cursors.append(one)
            self.ring.move(one, Occurrence.ENTER)
        if plan.looped:
            for one in self.cursors:
                self._act(one)
            while steps := [step for step in self.steps() if self._early(step)]:
                self.take(steps[-1])

    def _early(self, step: str) -> bool:
        """Whether a step belongs to what comes before everything else."""
        first = bool(self.committer) or len(self.versions) == self.plan.old
        return not step.startswith("act") and (step != "commit" or first)

    def copy(self) -> "World":
        """The same, on its own."""
        new = World.__new__(World)
        vars(new).update(vars(self))
        new.listed = dict(self.listed)
        twins: dict[Any, Any] = {None: None}
        for one in self.cursors:
            twin = twins[one] = Cursor.__new__(Cursor)
            for name in (*_FIELDS, *Cursor.__slots__):
                setattr(twin, name, getattr(one, name))
            twin.owner, twin.world = Owner(twin), new
        new.cursors = [twins[one] for one in self.cursors]
        for bench in self._benches():
            twin = twins[bench] = Bench.__new__(Bench)
            for name in (*_FIELDS, *_BENCH):
                setattr(twin, name, getattr(bench, name))
            twin.members = {twins[one]: twins[one].owner for one in bench.members}
            twin._leaving = [twins[one] for one in bench._leaving]
        for one in new.cursors:
            one.bench = twins[one.bench]
        if self.round is not None:
            some = new.round = copy(self.round)
            some.waiting = [
                (place, kind, [twins[one] for one in singles], [twins[one] for one in benches])
                for place, kind, singles, benches in some.waiting
            ]
            some.left, some.leaving = [twins[one] for one in some.left], []
            some.bench = twins[some.bench]
            for bench in new._benches():
                bench.serving = some if bench.serving is self.round else bench.serving
        new.bench = twins[self.bench]
        ring = new.ring = Ring.__new__(Ring)
        vars(ring).update(vars(self.ring))
        ring._chunks = deque(ring._chunks)
        ring._standing = {
            place: {group: {twins[one] for one in some} for group, some in groups.items()}
            for place, groups in ring._standing.items()
        }
        ring._followers = {twins[one] for one in ring._followers}
        return new

    def _benches(self) -> list[Bench]:
        waiting = () if self.round is None else self.round.waiting
        later = (bench for *_, benches in waiting for bench in benches)
        found = (self.bench, *(one.bench for one in self.cursors), *later)
        return list(dict.fromkeys(bench for bench in found if bench is not None))

    def key(self) -> tuple[Any, ...]:
        """Equal for worlds from which the same can follow."""
        ring, benches = self.ring, self._benches()
        return (
            *(
                (
                    *(bench.place, bench.next, bench.credit, bench.serving is None, bench is self.bench),
                    *(self._numbers(list(bench.members)), self._numbers(bench._leaving)),
                )
                for bench in benches
            ),
            self.lent,
            self.noted,
            None if self.round is None else self._told(self.round, benches),
            *(
                self.visible,
                self.versions,
                self.oldest,
                self.pruned,
                self.committer,
                self.overtaken,
                self.place,
            ),
            *(self.detached, tuple(sorted(self.listed.items())), self.advanced, ring.start, ring._next),
            tuple(chunk.version for chunk in ring._chunks),
            None if self.ahead is None else self.ahead[:2],
            bool(ring._followers) and ring._followed - ring._linked_events,
            *(
                (
                    *(one.next, one.phase.name, one.held, one.place, one.demand, one.drain, one.slices),
                    *(
                        one.bench is not None and benches.index(one.bench),
                        one in ring._followers,
                        one.filled,
                        one.sought,
                        one.pending,
                        one.halted,
                        one.acts,
                        one.expects,
                    ),
                )
                for one in self.cursors
            ),
        )

    def _told(self, some: Round, benches: list[Bench]) -> tuple[Any, ...]:
        waiting = tuple(
            (place, self._numbers(singles), tuple(benches.index(one) for one in found))
            for place, _, singles, found in some.waiting
        )
        return waiting, self._numbers(some.left), some.follows

    # What may happen next.

    def steps(self) -> Iterator[str]:
        """The names of all steps that can be taken now."""
        if self.committer or len(self.versions) < self.plan.old + len(self.plan.commits):
            yield "commit"
        if self.pruned < self.plan.prunes and self.oldest < self.visible:
            yield "prune"
        if self.advanced:
            yield "wake"
        if self.round is not None or self.noted is not None:
            yield "turn"
        for number, one in enumerate(self.cursors):
            if one.phase is not Phase.ENDED and one.acts:
                yield f"act {number}"
            if one.drain.at == "lent":
                if one.pending or one.halted:
                    yield f"recall {number}"
            elif one.drain.at or one.pending or (one.halted and one.phase is not Phase.ENDED):
                yield f"drain {number}"
            for place in range(len(one.slices)):
                yield f"slice {number} {place}"

    @property
    def resting(self) -> bool:
        """Whether nothing more happens by itself."""
        return not self.committer and not any(
            step.startswith(("drain", "recall", "slice", "turn", "wake")) for step in self.steps()
        )

    def take(self, step: str) -> None:
        """Takes a step."""
        what, *numbers = step.split()
        if what == "turn":
            self._loop_turn()
        elif what == "slice":
            self._slice(self.cursors[int(numbers[0])], int(numbers[1]))
        else:
            getattr(self, f"_{what}")(*(self.cursors[int(number)] for number in numbers))

    # The committer, by the steps of PublishGate.publish.

    def _commit(self) -> None:
        version = len(self.versions)
        match self.committer:
            case "":
                self._link(version + 1, self.plan.commits[version - self.plan.old])
            case "advance":
                self.visible = version
                self.committer = "wake"
            case "wake":
                if self.place is not None and self.plan.looped:
                    self._note(self.place)
                elif self.place is not None:
                    self._serve(self.place)
                for number in self.overtaken:
                    self.cursors[number].pending = True
                self.place, self.overtaken, self.committer = None, (), ""
                self.advanced = self.advanced or any(self.listed.values())
                self._wake(detached=False)
                if self.bench is not None and not self.plan.looped:
                    self.committer = "give"
            case _:
                self._give()

    def _give(self) -> None:
        """Delivers what was taken to those whose flags the committer has, and keeps these, but for those that were recalled."""
        assert self.ahead is not None
        assert self.bench is not None
        for one in (self.cursors[number] for number in self.lent):
            if one.drain.at != "lent":
                raise Wrong("its flag was given back, and it is being served")
            if not one.halted and one.sought is None:
                pending = one.pending
                self._deliver(one, [piece.block.version for piece in self.ahead.slices])
                one.pending = pending  # nothing looks at its drain
        some, end = self.bench.serving, self.ahead.end
        assert some is not None
        self.bench.served(some)
        if some.again:
            raise Wrong("two rounds at a time")
        self.ahead, self.bench, self.lent = None, None, ()
        if self.plan.looped:
            if some.follows is not None and some.follows <= self.visible:
                self._note(end)
        else:
            self.committer = ""

    # The loop, by the steps of DeliveryGroup._round.

    def _note(self, place: int) -> None:
        self.noted = place if self.noted is None else min(place, self.noted)

    def _loop_turn(self) -> None:
        """Half a turn: takes what lies ahead for the next ones, or delivers it and wakes those that could not take part."""
        some = self.round
        if some is None:
            assert self.noted is not None
            some, self.noted = Round(self.noted, 1), None
            self.round = some
        if self.bench is None:
            self.ring.take(None, some, self.visible)
            self.bench = some.bench
            if some.bench is not None:
                self.ahead = some.ahead
                self.lent = self._numbers([owner.cursor for owner in some.lent])
                return
        else:
            self._give()
        for one in some.left:
            if one.bench is not None:
                self._recall(one)
            one.pending = one.pending or (one.demand > 0 and not one.held)
        if some.waiting:
            some.clear()
        else:
            self.round = None

    def _recall(self, one: Cursor) -> None:
        """Asks for the flag, as Cursor.recall does."""
        if self.ring.recall(one):
            one.owner.release_hold(one)
        elif self.bench is None:
            raise Wrong("its flag is not to be had, and no round has it")

    def _serve(self, place: int) -> None:
        """Takes what lies ahead for those who can lend their flags to the committer, and signals the others, as DeliveryGroup does."""
        some = Round(place)
        if self.plan.grouped:
            self.ring.take(None, some, self.visible)
            self.ahead, self.bench = some.ahead, some.bench
            self.lent = self._numbers([owner.cursor for owner in some.lent])
        others = [
            one for one in self.ring.standing(None, place) if not some.bench or one.bench is not some.bench
        ]
        for one in {*some.left, *others}:
            if one in some.left and one.bench is not None:
                self._recall(one)
            one.pending = one.pending or (one.demand > 0 and not one.held)

    def _link(self, version: int, kind: str) -> None:
        ring = self.ring
        overtaken: list[RingCursor] = []
        if kind == "a" and self.detached:
            self.detached = False
            ring.attach(Position(version))
        if kind == "l":
            overtaken = ring.restart(version, self.visible)
        elif kind == "d":
            self.detached = True
            overtaken = ring.detach(self.visible)
        elif kind != "f" and not self.detached:
            chunk = Chunk(version, (Piece(version),))
            overtaken = ring.link(chunk, self.visible)
            self.place = chunk.place
            if self.plan.ring < ring.statistics().events:
                raise Wrong("the ring is above its bound")
        self.overtaken = self._numbers(overtaken)
        self.versions += "f" if kind == "f" else "m"
        self.committer = "advance"

    def _numbers(self, cursors: list[RingCursor]) -> tuple[int, ...]:
        return tuple(sorted(number for number, one in enumerate(self.cursors) if one in cursors))

    def _wake(self, *, detached: bool = True) -> None:
        """Signals those who wait for an advance, as WaitingList.due does, or WaitingList.replay those of a detached publisher."""
        self.advanced = self.advanced and not detached
        for number, upto in list(self.listed.items()):
            if bool(upto) == detached and (upto or 0) < self.visible:
                del self.listed[number]
                self.cursors[number].pending = True

    def _prune(self) -> None:
        self.oldest += 1
        self.pruned += 1
        for one in self.cursors:
            if not one.live and one.next < Position(self.oldest):
                one.pending = one.phase is not Phase.ENDED

    # Subscribers and the operator.

    def _act(self, one: Cursor) -> None:
        act, one.acts = one.acts[0], one.acts[1:]
        match act:
            case "1" | "9":
                one.demand += int(act)
                one.pending = one.pending or one.drain.at != "lent"
            case "s" | "e":
                one.sought = self.oldest if act == "s" else self.visible + 1
                one.pending = True
            case "c":
                one.halted = True
            case "k":
                ChangeSubscription.checkpoint(one.owner)
            case "p":
                self.ring.move(one, Occurrence.PAUSE)
                one.pending = one.pending or one.bench is not None
            case "r":
                row = self.ring.move(one, Occurrence.RESUME)
                one.pending = one.pending or (row is not None and PhaseAction.SIGNAL in row.then)

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
