"""What a writer expects of the log: nothing committed since a place, or nothing of some keys."""

import random
import threading
from unittest.mock import Mock, call
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import (
    ExpectationFailed,
    InvalidOption,
    LogFull,
    PenstockError,
    PositionAhead,
    PositionForeign,
    PositionForked,
    PositionMalformed,
    PredecessorFailed,
    TooCostly,
)
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Position, remove, truncate, upsert
from publishers.commits import expectation
from publishers.commits.expectation import FRAME_COST, Expectation, expected
from publishers.mutations.mutation import columns_of
from publishers.wal.read.reader import Reader
from tests.harness.inside import committer_of, files_of
from tests.publishers.support import QUICK, Held, fill, in_threads, opened, order, scratch, wait_until


def head(log):
    return str(log.token(log.head))


def test_a_commit_that_expects_the_head_is_written_and_one_behind_it_refused():
    """F145: nothing was written, and the error tells where to read on."""
    with opened() as log:
        place = head(log)
        assert log.commit([order(1)], expect=place).version == 1
        with pytest.raises(
            ExpectationFailed, match="the log is at 2:0, but the commit expected no change from 1:0 on"
        ) as found:
            log.commit([order(2)], expect=place)
        assert (found.value.expected, found.value.found) == (Position(1, 0), Position(2, 0))
        assert found.value.at is None
        assert not found.value.retryable
        assert log.head == Position(2, 0)
        assert log.commit([order(2)], expect=log.token(found.value.found)).version == 2


@pytest.mark.parametrize("options", [QUICK, {"sync": "interval"}, {"sync": "always"}])
def test_of_writers_that_expect_the_same_one_is_served(options):
    """F145: whoever is refused wrote nothing."""
    with opened(**options) as log:
        won, lost = [], []

        def race():
            for _ in range(10):
                place = head(log)
                try:
                    won.append(log.commit([order(1)], expect=place).version)
                except ExpectationFailed as error:
                    lost.append(error.found)

        in_threads(*[race] * 4)
        assert len(won) + len(lost) == 40
        assert sorted(won) == list(range(1, len(won) + 1))


def test_an_honest_retry_is_a_duplicate_although_its_expectation_is_old(monkeypatch):
    """F145: the duplicate is looked for first, also within a group."""
    with opened() as log:
        place = head(log)
        first = log.commit([order(1)], producer=("a", 1), expect=place)
        fill(log, 3)
        again = log.commit([order(1)], producer=("a", 1), expect=place)
        assert again.duplicate
        assert again.version == first.version
        with pytest.raises(ExpectationFailed):
            log.commit([order(1)], producer=("a", 2), expect=place)
        assert log.produced("a").sequence == 1  # what was refused is not remembered
        assert not log.commit([order(1)], producer=("a", 2)).duplicate


def test_in_a_group_an_expectation_meets_what_is_written_before_it(monkeypatch):
    """F145: two that expect the same, in one group: the first is written."""
    with opened() as log:
        held = Held(log, monkeypatch)
        threads = [threading.Thread(target=fill, args=(log, 1))]
        threads[0].start()
        assert held.inside.wait(60)
        token = log.token(Position(1, 0))._replace(position=Position(2, 0))
        outcomes = {}

        def write(name, **expected):
            try:
                outcomes[name] = log.commit([order(name)], **expected).version
            except ExpectationFailed as error:
                outcomes[name] = error

        for number, name in enumerate(("first", "second")):
            threads.append(threading.Thread(target=write, args=(name,), kwargs={"expect": token}))
            threads[-1].start()
            wait_until(lambda number=number: committer_of(log).waiting[0] == number + 1)
        held.go.set()
        for thread in threads:
            thread.join(60)
        assert held.sizes == [1, 1]
        assert outcomes["first"] == 2
        assert outcomes["second"].found == Position(3, 0)


def test_of_a_group_without_room_whoever_expected_shares_the_fate_of_what_it_met(monkeypatch):
    """F145: it is not refused for the sake of something that was not written."""
    with opened() as log:
        held = Held(log, monkeypatch)
        blocker = threading.Thread(target=fill, args=(log, 1))
        blocker.start()
        assert held.inside.wait(60)
        token = log.token(Position(1, 0))._replace(position=Position(2, 0))
        outcomes = {}

        def write(name, expect):
            try:
                outcomes[name] = log.commit([order(name)], expect=expect).version
            except PenstockError as error:
                outcomes[name] = error

        threads = []
        for number, (name, expect) in enumerate([("a", None), ("b", None), ("c", (token, [("order", "b")]))]):
            threads.append(threading.Thread(target=write, args=(name, expect)))
            threads[-1].start()
            wait_until(lambda number=number: committer_of(log).waiting[0] == number + 1)
        append, calls = files_of(log).append, []

        def full(transactions):
            calls.append(len(transactions))
            if len(calls) == 2:
                raise LogFull(0, 1)
            return append(transactions[:1])

        monkeypatch.setattr(files_of(log), "append", full)
        held.go.set()
        for thread in (blocker, *threads):
            thread.join(60)
        assert calls == [2, 1]
        assert outcomes["a"] == 2
        assert isinstance(outcomes["b"], LogFull)
        assert outcomes["c"] is outcomes["b"]


def test_an_expectation_of_keys_meets_changes_of_these_keys_only():
    """F145: other keys, other types, other areas do not concern it; a TRUNCATE does."""
    with opened() as log:
        place = head(log)
        expect = (place, [("order", "1"), ("order", b"2"), ("customer", "7")])
        log.commit([order(3), order(1, "item"), upsert("customer", "8", {})])
        log.commit([schema("order", {"type": "struct"})])
        assert log.commit([order(5)], expect=expect).version == 3
        log.commit([order(4), remove("order", "2")])
        with pytest.raises(ExpectationFailed, match="key '2' of 'order' changed at 4:2") as found:
            log.commit([order(5)], expect=expect)
        assert (found.value.at, found.value.entity_type, found.value.key) == (Position(4, 2), "order", "2")
        assert log.commit([order(5)], expect=(str(log.token(Position(4, 3))), [("order", "2")])).version == 5
        log.commit([truncate("customer")])
        with pytest.raises(ExpectationFailed, match="all keys of 'customer' changed at 6:1"):
            log.commit([order(5)], expect=(place, [("customer", "7")]))


@pytest.mark.parametrize("sync", ["os", "interval"])
def test_an_expectation_of_keys_meets_what_is_not_durable_or_withheld(sync):
    """F145."""
    with opened(sync=sync, sync_interval=60.0) as log:
        place = head(log)
        log.commit([order(1)])
        with pytest.raises(ExpectationFailed):
            log.commit([order(1)], expect=(place, [("order", "1")]))
        log.commit([order(2)], visible=False)
        with pytest.raises(ExpectationFailed):
            log.commit([order(2)], expect=(place, [("order", "2")]))
        assert log.commit([order(3)], expect=(place, [("order", "3")])).version == 3


def test_before_its_turn_an_expectation_reads_nothing_that_can_be_truncated(monkeypatch):
    """F145: it would meet the end of the file in the middle of a frame."""
    with opened() as log:
        place = head(log)
        fill(log, 3)
        log.commit([order(1)], visible=False)
        turn = []
        monkeypatch.setattr(Expectation, "judge_turn", lambda *_: turn.append(len(read)))
        read = []
        real = Reader.read
        monkeypatch.setattr(Reader, "read", lambda self, at: (read.append(frame := real(self, at)), frame)[1])
        log.commit([order(9)], expect=(place, [("order", "none")]))
        assert turn
        assert {frame.header.version for frame in read[: turn[0]] if frame} == {1, 2, 3}


def test_what_is_too_old_to_be_told_is_refused_and_says_so():
    """F145: too much was committed since, or the history is gone."""
    with opened(expect_bytes=1_000) as log:
        place = head(log)
        fill(log, 100)
        with pytest.raises(ExpectationFailed, match=r"more than 1000 bytes \(expect_bytes\)") as found:
            log.commit([order("x")], expect=(place, [("order", "x")]))
        assert found.value.at is None
    with opened(segment_bytes=65_536, retain_bytes=0, retain_age=None) as log:
        place = head(log)
        for _ in range(300):
            log.commit([upsert("order", "1", {"pad": "x" * 1000})])
        wait_until(lambda: log.oldest > Position(1, 0))
        with pytest.raises(ExpectationFailed, match="is no longer kept"):
            log.commit([order("x")], expect=(place, [("order", "x")]))
        with pytest.raises(ExpectationFailed):
            log.commit([order("x")], expect=place)


def test_tokens_of_other_logs_and_histories_are_refused_as_such():
    """F145: a malformed, a foreign, a forked and a later place."""
    with opened() as log, opened() as other:
        log.commit([order(1)])
        with pytest.raises(PositionForeign):
            log.commit([order(1)], expect=head(other))
        with pytest.raises(PositionForeign):
            log.commit([order(1)], expect=(head(other), [("order", "1")]))
        with pytest.raises(PositionMalformed):
            log.commit([order(1)], expect="nonsense")
        with pytest.raises(PositionAhead):
            log.commit([order(1)], expect=log.token(log.head)._replace(position=Position(9, 0)))
        with pytest.raises(PositionForked):
            log.commit([order(1)], expect=log.token(log.head)._replace(epoch=77, random=5))
        for wrong in (
            7,
            Position(1, 0),
            (head(log), "order"),
            (head(log), []),
            (head(log), [("order",)]),
            (head(log), [(1, 2)]),
            (7, [("a", "b")]),
        ):
            with pytest.raises(InvalidOption, match="expect is"):
                log.commit([order(1)], expect=wrong)
        with pytest.raises(InvalidOption, match="1 to 1000 pairs"):
            log.commit([order(1)], expect=(head(log), [("order", str(n)) for n in range(1001)]))
        assert log.head == Position(2, 0)


def test_an_expectation_outlives_an_opening_in_which_nothing_was_committed():
    """F145: the epoch is judged, not compared."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.commit([order(1)])
        place = head(log)
    with ChangeLog.open(path, **QUICK) as log:
        assert log.commit([order(2)], expect=place).version == 2
        with pytest.raises(ExpectationFailed):
            log.commit([order(2)], expect=place)


async def test_every_way_of_committing_takes_an_expectation():
    """F145: transactions, coroutines, columns, schemas and large ones."""
    with opened(spool_bytes=10_000) as log:
        place = head(log)
        assert (await log.commit_async([order(1)], expect=place)).version == 1
        with pytest.raises(ExpectationFailed):
            await log.commit_async([order(1)], expect=place)
        with pytest.raises(ExpectationFailed), log.transaction(expect=place) as tx:
            tx.upsert("order", "1", {})
        with pytest.raises(ExpectationFailed):
            log.commit([schema("order", {})], expect=place)
        assert log.schemas() == {}
        large = [upsert("order", str(n), {"pad": "x" * 1000}) for n in range(100)]
        with pytest.raises(ExpectationFailed):
            log.commit(large, expect=place)
        assert log.commit(large, expect=head(log)).version == 2
        with log.transaction(expect=(head(log), [("order", "1")])) as tx:
            tx.upsert("order", "1", {})
        assert tx.commit.version == 3


def test_behind_something_large_in_its_group_an_expectation_of_keys_cannot_be_told(monkeypatch):
    """F145: what is spooled is not read by the leader."""
    with opened(spool_bytes=10_000) as log:
        held = Held(log, monkeypatch)
        blocker = threading.Thread(target=fill, args=(log, 1, 1, "other"))
        blocker.start()
        assert held.inside.wait(60)
        place = log.token(Position(1, 0))
        large = [upsert("order", str(n), {"pad": "x" * 1000}) for n in range(100)]
        errors = []

        def write():
            with pytest.raises(ExpectationFailed) as found:
                log.commit([order("x")], expect=(place, [("order", "x")]))
            errors.append(str(found.value))

        threads = [threading.Thread(target=log.commit, args=(large,)), threading.Thread(target=write)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: committer_of(log).waiting[0] == number + 1)
        held.go.set()
        for thread in (blocker, *threads):
            thread.join(60)
        assert "too large for memory is committed at the same time" in errors[0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=12), st.randoms())
def test_expectations_are_judged_as_a_list_of_transactions_says(steps, chance: random.Random):
    """F145: over any history, with the whole log or with keys, the answer is that of a plain list."""
    with opened() as log:
        history: list[set[str]] = []
        for since, key, whole in steps:
            place = Position(min(since, len(history)) + 1, 0)
            later = history[place.version - 1 :]
            wrong = bool(later) if whole else any(str(key) in keys for keys in later)
            token = log.token(place)
            written = {str(chance.randrange(4)) for _ in range(2)}
            expect = token if whole else (token, [("order", str(key))])
            try:
                log.commit([order(name) for name in sorted(written)], expect=expect)
            except ExpectationFailed:
                assert wrong
            else:
                assert not wrong
                history.append(written)
        assert log.head.version == len(history) + 1


def test_expectations_of_all_commits_share_one_reader_which_goes_when_they_have_looked(monkeypatch):
    """F145: however many wait; a reader keeps megabytes of the log."""
    with opened() as log:
        place = head(log)
        fill(log, 3)
        alive = WeakSet()
        made = Reader.__init__
        monkeypatch.setattr(Reader, "__init__", lambda self, *given: (made(self, *given), alive.add(self))[0])
        held = Held(log, monkeypatch)
        try:
            waiting = [log.submit([order(9)], expect=(place, [("order", "none")])) for _ in range(8)]
            assert not alive
        finally:
            held.go.set()
        assert [one.result().version for one in waiting] == [*range(4, 12)]
        assert not alive


def test_nothing_is_scanned_behind_a_refused_predecessor():
    """F145: a pipeline of a thousand commits that cannot be written costs one look."""
    with opened() as log:
        place = head(log)
        fill(log, 3)
        spent = []
        expect = expected((place, [("order", "none")]))._replace(spend=spent.append)
        last = log.submit([order(1)], expect=place)
        assert isinstance(last.accepted.exception(60), ExpectationFailed)
        for _ in range(20):
            last = log.submit([order(1)], expect=expect, after=last)
            assert isinstance(last.accepted.exception(60), PredecessorFailed)
        assert not spent
        assert log.submit([order(1)], expect=expect).result().version == 4
        assert len(spent) == 1 + 3


def test_a_budget_ends_a_scan_before_the_turn_and_at_it(monkeypatch):
    """F145: nothing is written, and the log goes on."""
    with opened() as log:
        place = head(log)
        fill(log, 3)

        def spend(nbytes):
            if nbytes:
                assert nbytes > FRAME_COST
                raise TooCostly("budget", nbytes, 1, "less", left=0)

        expect = expected((place, [("order", "none")]))._replace(spend=spend)
        with pytest.raises(TooCostly):
            log.commit([order(1)], expect=expect)
        monkeypatch.setattr(Expectation, "look", lambda _self: None)
        with pytest.raises(TooCostly):
            log.commit([order(1)], expect=expect)
        assert log.commit([order(1)]).version == 4


def test_a_writer_without_budget_costs_no_read_and_compiles_nothing(monkeypatch):
    """F147: it may ask again as quickly as it likes."""
    with opened() as log:
        place = head(log)
        fill(log, 3)
        read, compiled = Mock(), Mock()
        monkeypatch.setattr(Reader, "read", read)
        monkeypatch.setattr(expectation, "Predicate", compiled)
        nothing = Mock(side_effect=TooCostly("budget", 0, 1, "less", left=0))
        for _ in range(20):
            expect = expected((place, [("order", "none")]))._replace(spend=nothing)
            with pytest.raises(TooCostly):
                log.submit([order(1)], expect=expect)
        assert nothing.mock_calls == [call(0)] * 20
        assert not read.called
        assert not compiled.called


def test_what_was_looked_at_before_a_cut_is_looked_at_again(monkeypatch):
    """F145: versions that were truncated meanwhile are others now."""
    with opened() as log:
        place = head(log)
        log.commit([order(1)])
        for _ in range(3):
            log.commit([order(2)], visible=False)
        look = Expectation.look

        def look_early(self):
            look(self)
            monkeypatch.undo()
            log.forget_after(1)
            log.commit([order(7)])

        monkeypatch.setattr(Expectation, "look", look_early)
        with pytest.raises(ExpectationFailed) as found:
            log.commit([order(3)], expect=(place, [("order", order(7).key)]))
        assert found.value.at == Position(2, 1)


def test_what_is_expected_may_be_told_once_all_changes_were_read():
    """F145: of columns that are read while they are committed, and of the other ways."""
    with opened() as log:
        place, told = head(log), []

        def changes():
            told.append("read")
            yield order(1)

        def columns():
            yield columns_of([*changes()])

        def expect():
            told.append("asked")
            return place, [("order", order(1).key)]

        assert log.commit_columns(columns(), expect=expect).version == 1
        assert log.submit(changes(), expect=lambda: None).result().version == 2
        with pytest.raises(ExpectationFailed):
            log.commit_columns(columns(), expect=expect)
        with pytest.raises(ExpectationFailed):
            log.commit(changes(), expect=expect)
        assert told == ["read", "asked", "read", *["read", "asked"] * 2]
