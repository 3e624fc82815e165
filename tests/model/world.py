"""A small log of which every step may come at any time: the real table of states and the real ring, the rest as a model.

A step is what one thread does between two looks at what others change. A world is copied before each step, so that all
orders can be tried from it. A committer publishes what its plan says; two subscriptions have a drain each; the replayer
gives each that is enlisted a slice; subscribers request, seek and cancel, an operator pauses and resumes, somebody asks for the
progress of a subscription, and retention deletes the oldest version, whenever they like and as often as the plan allows.
"""

from collections import deque
from collections.abc import Iterator
from copy import copy
from typing import Any, Final

from publishers.fanout.bench import Bench, RingCursor, Round
from publishers.fanout.chunk import Ahead, Chunk
from publishers.fanout.ring import Ring
from publishers.fanout.state import Occurrence, Phase, PhaseAction
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.position import Position
from tests.model.cursors import KIND, Cursor, Owner, Piece, Thread
from tests.model.deliveries import Deliveries, Plan, Wrong

__all__ = ["Plan", "World", "Wrong"]

_FIELDS: Final = ("next", "phase", "held", "place", "location", "group", "kind", "bench")
_BENCH: Final = ("credit", "serving", "_lock", "_again")


class World(Deliveries):
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
