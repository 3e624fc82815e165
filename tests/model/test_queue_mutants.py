"""More mistakes than the author of the model thought of: chosen by a reader of the product, before he had seen the others.

Half of them got through at first: the model did not look at what they harm.
"""

import pytest

from tests.model.explorer import Fault
from tests.model.queue_plans import try_all
from tests.mutants.patching import Mutant

QUEUE = "publishers.commits.queue:CommitQueue."
IN_THE_QUEUE = [
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
        "nbytes + first.size > options",
        "nbytes > options",
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


@pytest.mark.parametrize("mutant", [*IN_THE_QUEUE, *IN_COMMITTER], ids=lambda one: one.name)
def test_a_mistake_is_noticed(mutant):
    """F191; those in `Committer` are mistakes of the procedure that stands for it."""
    with mutant.living(), pytest.raises(Fault):
        list(try_all())
