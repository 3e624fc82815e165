"""The commit queue with everything that enters it at once: the real queue and its real table, the rest as procedures.

A procedure is what one thread does, written like the code of `Committer` that it stands for; each ``yield`` is a place where
any other thread may go on. Whatever stands before a ``yield`` in the product is one step here if other threads cannot see its
middle: because it holds the lock of the queue, or because only the leader changes it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

from publishers.commits.leadership import Leadership
from publishers.commits.pending import CommitStage
from publishers.commits.queue import CommitQueue
from publishers.errors import LogClosed, LogFailed
from tests.harness.constants import set_bounds
from tests.model.queue_entries import Entry, Procedure, QueuePlan, Refused, Step, Wrong

__all__ = ["QueueWorld"]

_INTERRUPT: Final = "interrupt"


class QueueWorld:
    """One state of everything, which goes on by `take`."""

    def __init__(self, plan: QueuePlan) -> None:
        self.plan = plan
        set_bounds(group_transactions=3, group_bytes=10)
        options: Any = SimpleNamespace(queue_bytes=plan.room)
        self.queue = CommitQueue(options, deferring=False, now=lambda: self.now)
        self.queue._prompt = plan.prompt
        self.now = 0.0
        self.left = {_INTERRUPT: plan.interrupts, "full": plan.fulls, "fails": plan.failures}
        self.arrivals: deque[Entry | None] = deque()
        self.registered: list[Entry] = []
        self.lost: str | None = None
        self.wal: list[Entry] = []
        self.writing: object = None
        self.durable = self.visible = self.published = 0
        self.withheld: int | None = None
        self.unsynced: list[int] = []
        self.gate: object = None
        self.leading: list[Entry] = []
        self.told: list[tuple[Entry, str]] = []  # the answers of this step
        self.entries: list[Entry] = []
        self.threads: dict[str, Procedure] = {}
        self.steps_of: dict[str, Step] = {}
        for number, word in enumerate(plan.threads):
            self._start(f"{number}{word}", self._close if word == "z" else self._thread, word)
        if any(word[0] in "sp" for word in plan.threads):
            self._start("arrivals", self._arrivals)

    # What happens next.

    def steps(self) -> list[tuple[str, str]]:
        """Every pair of a thread and what it can do now: its step, or a fault instead."""
        found = []
        for thread, step in self.steps_of.items():
            ready = step.ready()
            found += [(thread, step.name)] if ready else []
            found += [
                (thread, fault)
                for fault in step.faults
                if self.left[fault] and (thread != "arrivals" if fault == _INTERRUPT else ready)
            ]
        if self.queue.state is Leadership.RETURNING and self.now < self.queue._until:
            found.append(("clock", "late"))
        return found

    @property
    def resting(self) -> bool:
        """Whether nothing happens without a fault, or a clock that the queue must not depend on."""
        return not any(step.ready() for step in self.steps_of.values())

    def take(self, thread: str, what: str) -> None:
        """One step."""
        if thread == "clock":
            self.now = self.queue._until
            return
        running = self.threads[thread]
        if what in self.left:
            self.left[what] -= 1
        try:
            step = running.throw(KeyboardInterrupt) if what == _INTERRUPT else running.send(what)
        except StopIteration:
            del self.threads[thread], self.steps_of[thread]
        else:
            self.steps_of[thread] = step

    def _start(self, name: str, procedure: Callable[..., Procedure], *given: Any) -> None:
        self.threads[name] = running = procedure(*given)
        self.steps_of[name] = next(running)

    def _entry(self, kind: str, after: Entry | None = None) -> Entry:
        entry = Entry(self, len(self.entries), kind, after, len(self.wal))
        self.entries.append(entry)
        return entry

    def _arrives(self, entry: Entry) -> None:
        """Notes whether the entry comes when none is accepted any more, except to sync."""
        late = self.queue.closed or self.queue.failed is not None
        entry.late = late and (entry.transaction is not None or entry.task is not None)

    # The threads.

    def _thread(self, word: str) -> Procedure:
        before: Entry | None = None
        for kind in word:
            entry = self._entry(kind, before if kind == "p" else None)
            try:
                yield from (self._submit(entry) if entry.submitted else self._commit(entry))
                before = entry
            except KeyboardInterrupt:
                self.answer(entry, _INTERRUPT)
                return
            except Refused as error:
                self.answer(entry, str(error))
            except (LogClosed, LogFailed):
                self.answer(entry, "refused")
            else:
                if not entry.submitted:
                    self.answer(entry, "ok")

    def _commit(self, entry: Entry) -> Procedure:
        if entry.kind == "c":
            yield Step("skip", faults=(_INTERRUPT,))
            self._arrives(entry)
            if self.queue.skip(entry):
                yield from self._lead_alone(entry)
                return
        yield from self._take_part(entry)

    def _take_part(self, entry: Entry) -> Procedure:
        queue = self.queue
        try:
            while not entry.done:
                yield Step("enter", faults=(_INTERRUPT,))
                if entry.stage is CommitStage.OUTSIDE:
                    self._arrives(entry)
                    queue.enter(entry)  # type: ignore[arg-type]  # it has what a queue looks at
                yield Step("look")
                if queue.leader is entry:
                    yield from self._lead(entry)
                if not entry.done:
                    yield Step("sleep", faults=(_INTERRUPT,))
                    entry.asleep = True
                    yield Step("wait", lambda: entry.roused, (_INTERRUPT,))
                    entry.roused = False
            if entry.asleep:
                yield Step("return", faults=(_INTERRUPT,))
                queue.returned(entry)  # type: ignore[arg-type]  # as above
        except (KeyboardInterrupt, Refused, LogClosed, LogFailed):
            yield from self._quit(entry)
            raise
        if entry.error is not None:
            raise Refused(entry.error)

    def _quit(self, entry: Entry) -> Procedure:
        while True:
            try:
                yield Step("leave", faults=(_INTERRUPT,))
                self.queue.leave(entry)  # type: ignore[arg-type]  # as above
                while entry.stage is CommitStage.TAKEN:
                    yield Step("wait", lambda: entry.roused, (_INTERRUPT,))
                    entry.roused = False
            except KeyboardInterrupt:
                continue
            return

    def _submit(self, entry: Entry) -> Procedure:
        while True:
            yield Step("enter", faults=(_INTERRUPT,))
            self._arrives(entry)
            self.queue.enter(entry)  # type: ignore[arg-type]  # it has what a queue looks at
            if entry.stage is not CommitStage.OUTSIDE:
                return
            yield Step("wait", lambda: entry.roused, (_INTERRUPT,))
            entry.roused = False

    def _arrivals(self) -> Procedure:
        while True:
            yield Step("next", lambda: bool(self.arrivals))
            entry = self.arrivals.popleft()
            if entry is None:
                return
            try:
                yield from self._lead(entry)
            except Refused:
                continue

    def _close(self, kind: str) -> Procedure:
        yield Step("close")
        self.queue.close()
        for _ in range(2):  # once more after an interrupt
            entry = self._entry(kind)
            try:
                yield from self._take_part(entry)
            except KeyboardInterrupt:
                self.answer(entry, _INTERRUPT)
            except Refused:
                self.answer(entry, "failed")
                break
            else:
                self.answer(entry, "ok")
                break
        else:
            return
        yield Step("end arrivals")
        self.arrivals.append(None)
        self._lose("closed")

    # A leadership.

    def _lead_alone(self, entry: Entry) -> Procedure:
        written = False
        self._began(entry)
        entry.stage = CommitStage.TAKEN
        try:
            self._fault((yield Step("append", faults=("full", "fails", _INTERRUPT))))
            self._append([entry], alone=True)
            self._fault((yield Step("sync", faults=("fails", _INTERRUPT))))
            published = self._sync([entry])
            written = True
            yield from self._publish(entry, published, -1)
        except (Refused, KeyboardInterrupt) as error:
            entry.version = None
            self._judge(error, written=written)
            yield Step("pass on")
            self._passed(entry, -1)
            raise
        entry.stage = CommitStage.DONE

    def _lead(self, entry: Entry) -> Procedure:
        group: list[Entry] = []
        verdict: str | None = "unknown"
        written = False
        raised: BaseException | None = None
        yield Step("begin")
        self.queue.begin(entry, group)  # type: ignore[arg-type]  # they have what a queue looks at
        self._began(entry)
        for member in group:
            member.groups += 1
        try:
            self._fault((yield Step("append", faults=("full", "fails", _INTERRUPT))))
            if self.queue.failed is not None:
                raise Refused("refused")
            if group[0].task is not None:
                published = yield from self._task(group[0])
            else:
                self._append(group)
                self._fault((yield Step("sync", faults=("fails", _INTERRUPT))))
                published = self._sync(group)
            written = True
            yield from self._publish(entry, published, len(group))
            verdict = None
        except (Refused, KeyboardInterrupt) as error:
            verdict = self._judge(error, written=written)
            raised = error if verdict != str(error) else None
        if verdict is not None:
            for member in group:
                yield Step("refuse")
                member.refuse(verdict)
        yield Step("end")
        if self.queue.leader is entry:
            self.leading.remove(entry)
        self.queue.end(entry, group, self.now + 1)  # type: ignore[arg-type]  # as above
        for member in group:
            yield Step("finish")
            member.finish()
        if raised is not None:
            raise raised

    def _task(self, entry: Entry) -> Procedure:
        """What `publish`, `forget_after` and `roll` of `Committer` do: sync, and what they are for."""
        entry.ran = True
        shown, self.unsynced = self.unsynced, []
        self.durable = len(self.wal)
        if entry.task == "t" and self.withheld is not None:
            shown = [*shown, *range(self.withheld, len(self.wal) + 1)]
            self.withheld = None
        if entry.task == "f" and self.withheld is not None:
            yield Step("gate", lambda: self.gate is None)
            gone = self.wal[self.withheld - 1 :]
            for one in gone:
                one.forgotten = True
            del self.wal[self.withheld - 1 :]
            self.durable = len(self.wal)
            self.withheld = None
            for one in [one for one in self.registered if one in gone]:
                self.registered.remove(one)
                self.answer(one, "forgotten")
        self.queue.settle(withheld=self.withheld is not None)
        return shown

    def _append(self, group: list[Entry], *, alone: bool = False) -> None:
        if self.writing is not None:
            raise Wrong("two write at once")
        deferring, self.writing = self.queue.deferring, group
        for member in group:
            if member.transaction is None:
                member.version = 0
            elif member.after is not None and member.after.error is not None:
                member.error = "predecessor"
            elif member.expects is not None and len(self.wal) > member.expects:
                member.error = "expectation"
            else:
                self.wal.append(member)
                member.version = version = len(self.wal)
                if member.hidden and self.withheld is None:
                    self.withheld = version
                if self.withheld is None or alone:
                    self.unsynced.append(version)
        if alone:
            return
        if deferring:
            self.queue.settle(withheld=self.withheld is not None)
        elif self.withheld is not None:
            raise Wrong("withheld, and the queue does not know")
        # As `Arrivals.accept`.
        self.registered += [one for one in group if one.submitted and one.error is None]
        if self.lost is not None:
            self._lose(self.lost)

    def _sync(self, group: list[Entry]) -> list[int]:
        if self.writing is None:
            raise Wrong("synced by another one")
        self.writing = None
        if self.plan.interval and all(one.transaction is not None for one in group):
            return []
        self.durable = len(self.wal)
        shown, self.unsynced = self.unsynced, []
        return shown

    def _publish(self, leader: Entry, published: list[int], beyond: int) -> Procedure:
        yield Step("gate", lambda: self.gate is None)
        self.gate = leader
        try:
            yield Step("pass on")
            self._passed(leader, beyond)
            self._fault((yield Step("publish", faults=("fails", _INTERRUPT))))
            for version in published:
                # A log that has failed restarts its rings: it may leave versions out.
                if version != self.visible + 1 and self.queue.failed is None:
                    raise Wrong(f"{version} is published behind {self.visible}")
                self.visible = version
        finally:
            self.gate = None
        yield Step("settle")
        self.settle()

    def _fault(self, what: str) -> None:
        if what in self.left:
            raise Refused("full" if what == "full" else "failed")

    def _judge(self, error: BaseException, *, written: bool) -> str:
        if not written:
            self.writing = None
        refused = isinstance(error, Refused) and not written
        if not (refused and str(error) == "full") and self.queue.failed is None:
            self.queue.failed = "failed"
            self._lose("unknown")
        return str(error) if refused else "unknown"

    def _began(self, entry: Entry) -> None:
        if self.leading:
            raise Wrong(f"{entry} leads beside {self.leading}")
        self.leading.append(entry)

    def _passed(self, leader: Entry, beyond: int) -> None:
        if self.queue.leader is leader and len(self.queue) > beyond:
            self.leading.remove(leader)
        self.queue.pass_on(leader, beyond)

    # Answers.

    def settle(self) -> None:
        """Answers the submissions that have become visible, as `Arrivals.settle`."""
        for one in [one for one in self.registered if (one.version or 0) <= self.visible]:
            self.registered.remove(one)
            self.answer(one, "ok")

    def _lose(self, why: str) -> None:
        self.lost = why
        lost, self.registered = self.registered, []
        for one in lost:
            self.answer(one, why)

    def answer(self, entry: Entry, what: str) -> None:
        """Tells the writer of an entry what became of it."""
        if entry.submitted and entry.answers:
            return  # a future is resolved once
        entry.answers.append(what)
        self.told.append((entry, what))

    # For those who try all orders.

    def key(self) -> tuple[Any, ...]:
        """Equal for worlds from which the same can follow."""
        queue = self.queue
        return (
            *(one.key() for one in self.entries),
            *(name for one in self.threads.items() for name in _place(*one)),
            (queue.state.name, repr(queue.leader), repr(queue._waiting), repr(queue.outside)),
            (queue.deferring, queue.failed, queue.closed, queue._prompt, self.now < queue._until),
            tuple(sorted(one.number for one in queue._away)),  # type: ignore[attr-defined]  # entries of the model
            (repr(self.arrivals), repr(self.registered), self.lost, repr(self.wal), repr(self.writing)),
            (self.durable, self.visible, self.withheld, *self.unsynced, repr(self.gate), *self.left.values()),
        )


def _place(name: str, running: Procedure) -> Iterator[object]:
    """Where a thread is, and what it has in hand."""
    yield name
    inner: Any = running
    while inner is not None:
        frame = inner.gi_frame
        yield frame.f_lineno
        yield repr({key: one for key, one in frame.f_locals.items() if key in _HANDS})
        inner = inner.gi_yieldfrom


_HANDS: Final = ("entry", "group", "verdict", "written", "published", "member", "raised", "kind")
