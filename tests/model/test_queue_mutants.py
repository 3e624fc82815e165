"""Mistakes in the table of leadership, in the queue and in `Committer`, each of which the model notices.

Half were chosen by a reader of the product, before he had seen the others; and half of his got through at first: the model did not look
at what they harm.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from publishers.commits import queue
from publishers.commits.leadership import LEADERSHIP, LeadershipEvent, LeadershipGuard
from publishers.commits.leadership import Leadership as S
from publishers.model.transitions import TransitionRow, TransitionTable
from tests.harness.constants import set_constant
from tests.model.explorer import Fault
from tests.model.queue_plans import try_all
from tests.mutants.patching import Mutant

E = LeadershipEvent
Row = TransitionRow[S, E, LeadershipGuard, Any]
Rows = Iterable[Row]


def row(state: S, event: E, change: Callable[[Row], Row | None], at: int = 0) -> Callable[[], Rows]:
    """The table with one row changed, or left out: the one of this event at an index."""

    def mutated() -> Rows:
        found = LEADERSHIP.of(state, event)[at]
        return [
            one
            for one in (change(one) if one is found else one for one in LEADERSHIP.rows)
            if one is not None
        ]

    return mutated


def to(state: S) -> Callable[[Row], Row]:
    return lambda one: one._replace(to=state)


def unguarded(one: Row) -> Row:
    return one._replace(when=())


def left_out(_: Row) -> None:
    return None


def added(state: S, event: E, to: S) -> Callable[[], Rows]:
    return lambda: [TransitionRow(state, event, (), to), *LEADERSHIP.rows]


TABLES = {
    "free while commits wait, as the group was written": row(S.LEADING, E.YIELD, left_out),
    "free while commits wait, as the group was published": row(S.LEADING, E.END, left_out, 1),
    "free while commits wait, as the leader left": row(S.APPOINTED, E.QUIT, left_out),
    "free while commits wait, as the threads are back": row(S.RETURNING, E.BACK, left_out),
    "a leader that left, and still leads": row(S.APPOINTED, E.QUIT, to(S.APPOINTED), 1),
    "a leadership that never ends": row(S.LEADING, E.END, left_out, 2),
    "threads are waited for that are not away": row(S.LEADING, E.END, unguarded),
    "nobody is appointed behind threads that came back": row(S.RETURNING, E.BACK, to(S.RETURNING)),
    "appointed while another one writes": added(S.LEADING, E.ENTER, S.APPOINTED),
    "appointed twice": added(S.APPOINTED, E.ENTER, S.APPOINTED),
}

QUEUE = "publishers.commits.queue:CommitQueue."
IN_THE_QUEUE = [
    Mutant(
        "a leader is started twice",
        QUEUE + "_move",
        "first.appoint()",
        "first.appoint(); first.appoint()",
        (),
    ),
    Mutant(
        "one that was not appointed begins",
        QUEUE + "begin",
        "if self.leader is not leader or not self._move(LeadershipEvent.BEGIN):",
        "self._move(LeadershipEvent.BEGIN)\n        if False:",
        (),
        besides=(
            Mutant(
                "a leader is started twice",
                QUEUE + "_move",
                "first.appoint()",
                "first.appoint(); first.appoint()",
                (),
            ),
        ),
    ),
    Mutant(
        "two skip the queue at once",
        QUEUE + "skip",
        "self.state is not _FREE",
        "self.leader is self",
        (),
    ),
    Mutant("one skips the queue, and nobody knows", QUEUE + "skip", "self.leader = transaction", "pass", ()),
    Mutant("leadership passed on twice", QUEUE + "pass_on", "self.leader is leader and ", "", ()),
    Mutant("another one's leadership ended", QUEUE + "end", "if self.leader is leader:", "if True:", ()),
    Mutant("no look outside as a group begins", QUEUE + "begin", "self._call_in()", "pass", ()),
    Mutant("the bytes of one that left", QUEUE + "leave", "self._bytes -= pending.size", "pass", ()),
    Mutant("a thread that left is waited for", QUEUE + "leave", "self._returned(pending)", "pass", ()),
    Mutant("withheld, and not deferring", QUEUE + "enter", "self.deferring = True", "pass", ()),
    Mutant("admitted after the close", QUEUE + "enter", "raise LogClosed", "pass", ()),
    Mutant("a thread that runs is still asleep", QUEUE + "_returned", "pending.asleep = False", "pass", ()),
    Mutant(
        "threads are waited for that never slept",
        QUEUE + "end",
        "{one for one in group if one.asleep}",
        "set(group)",
        (),
    ),
    Mutant(
        "one of those outside is called in", QUEUE + "_call_in", "while self.outside", "if self.outside", ()
    ),
    Mutant(
        "a thread has not returned if a leader has its commit",
        QUEUE + "leave",
        "    self._returned(pending)",
        "        self._returned(pending)",
        (),
    ),
    Mutant("a commit leaves while it is written", QUEUE + "begin", "first.stage = _TAKEN", "pass", ()),
    Mutant(
        "only the leader is written",
        QUEUE + "begin",
        "first.stage = _TAKEN",
        "leader.stage = _TAKEN",
        (),
    ),
    Mutant("a commit skips what is withheld", QUEUE + "skip", " or self.deferring", "", ()),
    Mutant("a commit skips the failure", QUEUE + "skip", " or self.failed is not None", "", ()),
    Mutant("a commit skips the close", QUEUE + "skip", " or self.closed", "", ()),
    Mutant(
        "a task is in the group of a commit",
        QUEUE + "begin",
        "nbytes + first.size > GROUP_BYTES",
        "nbytes > GROUP_BYTES",
        (),
    ),
    Mutant("larger than the queue", QUEUE + "enter", "self._waiting and self._bytes", "self._bytes", ()),
    Mutant("a task after the close", QUEUE + "enter", " or pending.task is not None", "", ()),
    Mutant(
        "woken before it can see that it leads",
        QUEUE + "_move",
        "self.leader = first = self._waiting[0]\n        first.appoint()",
        "first = self._waiting[0]\n        first.appoint()\n        self.leader = first",
        (),
    ),
    Mutant(
        "what waits and is withheld is forgotten",
        QUEUE + "settle",
        " or any(member.hidden for member in self._waiting)",
        "",
        (),
    ),
    Mutant("one that leaves makes room, and tells nobody", QUEUE + "leave", "self._call_in()", "pass", ()),
]

WORLD = "tests.model.queue_world:QueueWorld."
ACCEPTED = "self.registered += [one for one in group if one.submitted and one.error is None]"
JUDGED = "self._judge(error, written=written)\n"
PASSED = 'yield Step("pass on")\n        self._passed(entry, -1)\n'
REFUSED = """\
    if verdict is not None:
        for member in group:
            yield Step("refuse")
            member.refuse(verdict)
"""
ENDED = """\
    yield Step("end")
    if self.queue.leader is entry:
        self.leading.remove(entry)
    self.queue.end(entry, group, self.now + 1)  # type: ignore[arg-type]  # as above
"""
IN_COMMITTER = [
    Mutant(
        "`_take_part` returns to a caller whose commit is written",
        WORLD + "_quit",
        "while entry.stage is CommitStage.TAKEN",
        "while False",
        (),
    ),
    Mutant(
        "`_take_part` returns to a caller that is interrupted twice",
        WORLD + "_quit",
        "except KeyboardInterrupt:\n            continue",
        "except KeyboardInterrupt:\n            raise",
        (),
    ),
    Mutant("`_lead` refuses its group too late", WORLD + "_lead", REFUSED + ENDED, ENDED + REFUSED, ()),
    Mutant(
        "`_lead_alone` passes leadership on before its failure is known",
        WORLD + "_lead_alone",
        JUDGED + "        " + PASSED,
        PASSED + '        yield Step("judge")\n        ' + JUDGED,
        (),
    ),
    Mutant(
        "`_write` syncs if the leader asks for it",
        WORLD + "_sync",
        "all(one.transaction is not None for one in group)",
        "group[0].transaction is not None",
        (),
    ),
    Mutant(
        "`accept` behind the next leader, who may truncate",
        WORLD + "_lead",
        "yield from self._publish(entry, published, len(group))\n",
        f"yield from self._publish(entry, published, len(group))\n        {ACCEPTED}\n",
        (),
        besides=(Mutant("`accept` left out", WORLD + "_append", ACCEPTED, "pass", ()),),
    ),
    Mutant(
        "`submit` returns when there is room",
        WORLD + "_submit",
        "entry.roused = False\n",
        "entry.roused = False\n        return\n",
        (),
    ),
]


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_in_the_table_of_leadership_is_noticed(name, monkeypatch):
    """F191."""
    mutant = tuple(TABLES[name]())
    assert mutant != LEADERSHIP.rows
    set_constant(monkeypatch, queue, "LEADERSHIP", TransitionTable(mutant))
    # The table alone decides here: `enter` saves the look-up where there is no row.
    looked_up = Mutant("", QUEUE + "enter", "if self.state is _FREE:", "if self.state is not _RETURNING:", ())
    with looked_up.living(), pytest.raises(Fault):
        list(try_all())


@pytest.mark.parametrize("mutant", [*IN_THE_QUEUE, *IN_COMMITTER], ids=lambda one: one.name)
def test_a_mistake_is_noticed(mutant):
    """F191; the first is how two commits came to lead at once. Those in `Committer` are mistakes of the procedure that stands for it."""
    with mutant.living(), pytest.raises(Fault):
        list(try_all())
