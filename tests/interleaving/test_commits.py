"""The queue of commits, its leader and the arrivals: every kind of entry beside every other, in chosen orders."""

import contextlib
from collections.abc import Callable
from itertools import combinations_with_replacement

import pytest

from penstock_cdc.types import Submission
from publishers import ChangeLog, upsert
from publishers.errors import (
    AlreadyVisible,
    ExpectationFailed,
    LogClosed,
    NoSuchVersion,
    PredecessorFailed,
)
from tests.harness.constants import without_bounds
from tests.harness.inside import committer_of
from tests.harness.scale import LONG, scaled
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import QUICK

LINES = ("commits/queue.py", "commits/group_commit.py", "commits/submission.py", "commits/pending.py")


class Case:
    """A log, and what was acknowledged.

    Attributes:
        acknowledged: The version of each key.
        forgotten: The versions behind which withheld transactions were truncated.
        accepted: Submissions that were awaited until they were accepted.
        refused: Keys whose commits were refused; none of them is in the log.
    """

    def __init__(self, *, first: bool = False, **options: object) -> None:
        self.disk = Disk()
        self.options = {**QUICK, **options}
        self.log = self.opened()
        if not first:
            self.log.submit([]).visible.result()  # starts the threads of the arrivals
        self.acknowledged: dict[str, int] = {}
        self.forgotten: list[int] = []
        self.refused: list[str] = []
        self.accepted: list[Submission] = []
        self.keys = 0

    def opened(self, disk: Disk | None = None) -> ChangeLog:
        return ChangeLog.open(
            "/log", filesystem=disk or self.disk, clock=Time(), **without_bounds(self.options)
        )

    def change(self) -> tuple[str, object]:
        self.keys += 1
        return str(self.keys), upsert("order", str(self.keys), {"n": self.keys})

    # The kinds of entries. Each does it twice: a thread that comes back is one of the kinds too.

    def commits(self) -> None:
        for _ in range(2):
            key, change = self.change()
            try:
                self.acknowledged[key] = self.log.commit([change]).version
            except LogClosed:
                self.refused.append(key)
                raise

    def commits_durably(self) -> None:
        for _ in range(2):
            key, change = self.change()
            self.acknowledged[key] = self.log.commit([change], durable=True).version

    def submits(self) -> None:
        for _ in range(2):
            key, change = self.change()
            try:
                submission = self.log.submit([change])
                self.accepted.append(submission)
                self.acknowledged[key] = submission.accepted.result().version
            except LogClosed:
                self.refused.append(key)
                raise

    def submits_a_chain(self) -> None:
        (key, change), (later_key, later_change) = self.change(), self.change()
        first = self.log.submit([change], durable=True)
        later = self.log.submit([later_change], after=first, durable=True)
        try:
            self.acknowledged[later_key] = later.durable.result().version
            self.acknowledged[key] = first.durable.result().version
        except NoSuchVersion:
            if not self.forgotten:
                raise
        else:
            assert self.forgotten or self.acknowledged[key] < self.acknowledged[later_key]

    def expects(self) -> None:
        for _ in range(2):
            key, change = self.change()
            try:
                token = self.log.token(self.log.head)
                self.acknowledged[key] = self.log.commit([change], expect=token).version
            except ExpectationFailed:
                self.refused.append(key)

    def withholds(self) -> None:
        key, change = self.change()
        version = self.log.commit([change], visible=False).version
        self.acknowledged[key] = version
        try:
            self.log.publish(version)
        except NoSuchVersion:
            if not any(kept < version for kept in self.forgotten):
                raise

    def forgets(self) -> None:
        key, change = self.change()
        version = self.log.commit([change], visible=False).version
        self.acknowledged[key] = version
        try:
            self.forgotten.append(
                version - 1
            )  # before the call: other threads see the truncation before it returns
            self.log.forget_after(version - 1)
        except (AlreadyVisible, NoSuchVersion):
            self.forgotten.remove(version - 1)

    def keeps_house(self) -> None:
        committer = committer_of(self.log)
        committer.sync()
        committer._alone(committer._roll)
        committer.sync()

    def closes(self) -> None:
        self.log.close()

    # What must hold.

    def check(self) -> None:
        """Opened again, each acknowledged key is in the log once, at its version, and nothing refused is."""
        if self.options["sync"] == "always":
            for submission in self.accepted:
                with contextlib.suppress(LogClosed, NoSuchVersion):
                    submission.durable.result()
            self.check_contents(self.disk.after_power_cut())
        self.log.close()
        self.check_contents(self.disk)

    def check_contents(self, disk: Disk) -> None:
        with self.opened(disk) as log:
            if log.withheld is not None:
                log.publish(log.withheld[-1])
            found: dict[str, list[int]] = {}
            for change in log.history(limit=1000).changes:
                if change.key is not None:
                    found.setdefault(change.key, []).append(change.version)
            versions = sorted(version for places in found.values() for version in places)
            assert versions == list(range(2, log.head.version)), found
        for key, version in self.acknowledged.items():
            gone = any(kept < version for kept in self.forgotten)
            assert found.get(key) == [version] or (gone and key not in found), (key, version, found)
        assert not set(self.refused) & set(found)


KINDS = {
    kind.__name__: kind
    for kind in (
        Case.commits,
        Case.commits_durably,
        Case.submits,
        Case.submits_a_chain,
        Case.expects,
        Case.withholds,
        Case.forgets,
        Case.keeps_house,
        Case.closes,
    )
}
OPTIONS = {
    "always": {"sync": "always"},
    "os": {},
    "interval": {"sync": "interval", "sync_interval": 0.01},
    "small groups": {"sync": "always", "group_transactions": 1},
    "full queue": {"queue_bytes": 1},
}
THREES = list(combinations_with_replacement(KINDS, 3))


def lives(names: tuple[str, ...], options: dict[str, object]) -> Callable[[Scheduler], None]:
    """A scenario: one thread of each kind."""
    closing = "closes" in names

    def tolerant(kind: Callable[[Case], None], case: Case) -> Callable[[], None]:
        def body() -> None:
            try:
                kind(case)
            except (LogClosed, PredecessorFailed):
                if not closing:
                    raise

        body.__name__ = kind.__name__
        return body

    def scenario(run: Scheduler) -> None:
        case = Case(**options)
        run.together(*(tolerant(KINDS[name], case) for name in names))
        case.check()

    scenario.__name__ = "+".join(names)
    return scenario


@pytest.mark.parametrize("options", OPTIONS)
def test_three_entries_of_any_kinds_are_each_written_once(options):
    """F13, F40, F145: one leader at a time, and nobody waits for ever."""
    for place, names in enumerate(THREES):
        if LONG or place % 5 == list(OPTIONS).index(options):
            explore(
                lives(names, OPTIONS[options]), preemptions=2, most=scaled(2), walks=scaled(4), seed=place
            )


@pytest.mark.parametrize("options", OPTIONS)
def test_entries_of_all_kinds_at_once_are_each_written_once(options):
    """F13, F40, F145: the same with all of them, and steps between any two lines."""
    every = tuple(name for name in KINDS if name != "closes")
    scenario = lives(every, OPTIONS[options])
    explore(scenario, preemptions=3, most=scaled(10), walks=scaled(10))
    explore(scenario, most=0, walks=scaled(8), files=LINES)
    explore(lives(tuple(KINDS), OPTIONS[options]), preemptions=3, most=scaled(10), walks=scaled(10))


def test_a_first_submission_that_meets_the_close_leaves_no_thread():
    """Its two threads are ended, or never started."""

    def scenario(run: Scheduler) -> None:
        case = Case(first=True)

        def submits() -> None:
            with contextlib.suppress(LogClosed):
                case.log.submit([case.change()[1]])

        run.together(submits, case.closes)

    explore(scenario, preemptions=1)
