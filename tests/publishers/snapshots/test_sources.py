"""Rows of sources that the user gives: pages of a function, and what is wrong with them."""

import threading

import pytest

import flow
from flow.clock import SYSTEM_CLOCK
from penstock_cdc.errors import InvalidOption, SourceFailed, StateOff
from penstock_cdc.types import SnapshotBegin, SnapshotEnd
from publishers import ChangeLog, Criterion, Operation, PageSource, Position, remove, truncate, upsert
from publishers.errors import InvalidChange, LogError, LogExhausted, LogFull, SnapshotGone
from publishers.snapshots.reader import SnapshotReader
from tests.harness.failing import failing
from tests.harness.inside import catalog_of, files_of
from tests.publishers.movement import RETAIN
from tests.publishers.snapshots.test_feed import Snapshotted, keys, subscribed
from tests.publishers.support import QUICK, Probe, fill, opened, order, wait_until

ORDERS = Criterion(entity_types={"order"})


@pytest.fixture
def log():
    with opened() as one:
        yield one


def table(rows, kind="order", **how):
    """A source of rows that stand in a mapping, by text of keys."""

    def pages(request):
        found = sorted(key for key in rows if key > (request.after or "") and key <= (request.until or "~"))
        return [(key, rows[key]) for key in found[: request.limit]]

    return PageSource(entity_type=kind, pages=pages, **how)


def ends(probe):
    """How many snapshots have ended; no page of them is read any more."""
    return sum(isinstance(one, SnapshotEnd) for one in probe.signals)


def rows_of(log, source, *wishes, **reading):
    probe = subscribed(log, *wishes, source=source, **reading)
    wait_until(lambda: probe.terminals or any(isinstance(one, SnapshotEnd) for one in probe.signals))
    return probe


def test_pages_of_a_function_come_first_and_then_every_change(log):
    """F88, F93."""
    log.commit([order(1)])
    source = table({"1": {"n": 1}, "2": {"n": 2}, "3": {"n": 3}}, page_rows=2)
    probe = rows_of(log, source)
    log.commit([order(9)])
    wait_until(lambda: len(probe.changes) == 5)
    assert [(c.operation.name, c.key, c.body) for c in probe.changes[:3]] == [
        ("READ", "1", {"n": 1}),
        ("READ", "2", {"n": 2}),
        ("READ", "3", {"n": 3}),
    ]
    assert {change.position for change in probe.changes[:3]} == {Position(2)}
    assert probe.changes[4].key == "9"


def test_several_sources_are_read_one_behind_the_other(log):
    """F88: those of types that are not wanted are not read."""
    read = []

    def pages(request):
        read.append(request)
        return []

    sources = [
        table({"1": {}}, "a"),
        PageSource(entity_type="b", pages=pages),
        table({"1": {}, "2": {}}, "c", page_rows=1),
    ]
    found = [(change.entity_type, change.key) for change in rows_of(log, sources).changes]
    assert found == [("a", "1"), ("c", "1"), ("c", "2")]
    assert len(read) == 1
    rest = rows_of(log, sources, Criterion(entity_types={"c", "z"}))
    assert [(change.entity_type, change.key) for change in rest.changes] == [("c", "1"), ("c", "2")]
    assert rows_of(log, sources, Criterion(entity_types={"z"})).changes == []
    assert len(read) == 1


def test_a_key_that_changes_while_its_page_is_read_is_no_row_of_it(log):
    """F88: the change is as new, and the row may be older."""
    kept = {"1": {"n": "old"}, "2": {"n": "old"}, "3": {"n": "old"}}

    def pages(request):
        yield from list(kept.items())
        log.commit([upsert("order", "1", {"n": "new"}), remove("order", "2")])

    source = PageSource(entity_type="order", pages=pages)
    probe = rows_of(log, source, ORDERS)
    assert [(c.operation.name, c.key, c.body) for c in probe.changes] == [
        ("UPSERT", "1", {"n": "new"}),
        ("REMOVE", "2", None),
        ("READ", "3", {"n": "old"}),
    ]


def test_a_truncation_while_a_page_is_read_leaves_no_row_of_it(log):
    """F88: but what was put since."""

    def pages(request):
        yield "1", {"n": "old"}
        yield "2", {"n": "old"}
        log.commit([truncate("order"), upsert("order", "2", {"n": "new"})])

    source = PageSource(entity_type="order", pages=pages)
    told = {Operation.TRUNCATE, Operation.REMOVE}
    probe = rows_of(log, source, Criterion(entity_types={"order"}, operations=told))
    assert [(c.operation.name, c.key) for c in probe.changes] == [("TRUNCATE", None), ("READ", "2")]
    assert probe.changes[1].body == {"n": "new"}


def test_further_wishes_hold_for_rows_too(log):
    """F88: whatever else was asked for does not apply to them."""
    source = table({"1": {}, "2": {}, "12": {}})
    either = Criterion(keys={"1", "2"}, also=[Criterion(key_globs={"*2"})])
    assert keys(rows_of(log, source, either).changes) == ["2"]
    changed = Criterion(entity_types={"order"}, changed="n", also=[Criterion(key_globs={"1*"})])
    assert keys(rows_of(log, source, changed).changes) == ["1", "12"]


def test_where_changes_are_not_wanted_a_row_is_as_its_change_has_left_it(log):
    """F88: who asks for removals only gets the rows that there are all the same."""

    def pages(request):
        yield "1", {"n": "old"}
        yield "2", {"n": "old"}
        log.commit([upsert("order", "1", {"n": "new"}), remove("order", "2"), order(7)])

    source = PageSource(entity_type="order", pages=pages)
    probe = rows_of(log, source, Criterion(entity_types={"order"}, operations={Operation.REMOVE}))
    assert [(c.operation.name, c.key, c.body) for c in probe.changes] == [
        ("REMOVE", "2", None),
        ("READ", "1", {"n": "new"}),
    ]


def test_a_source_as_of_a_version_is_asked_for_one_version_to_the_end(log):
    """F88, F89."""
    fill(log, 2, 3)
    asked = []

    def pages(request):
        asked.append((request.version, request.after))
        log.commit([order(0)])
        return [(str(n), {"as_of": request.version}) for n in range(3) if str(n) > (request.after or "")][:1]

    source = PageSource(entity_type="order", pages=pages, as_of=True, page_rows=1)
    probe = rows_of(log, source, ORDERS)
    assert {version for version, _ in asked} == {2}
    assert [change.body for change in probe.changes[:3]] == [{"as_of": 2}] * 3
    rest = rows_of(log, source, ORDERS, since=probe.changes[0].cursor)
    assert [(c.key, c.body) for c in rest.changes if c.operation is Operation.READ] == [
        ("1", {"as_of": 2}),
        ("2", {"as_of": 2}),
    ]


def test_a_marker_says_up_to_where_the_log_has_what_was_read(log):
    """F88: what was read and is on its way comes before the row."""
    late = [upsert("order", "1", {"n": "late"})]

    def marker():
        return log.commit([*late, upsert("mark", "1", {})])

    probe = rows_of(log, table({"1": {"n": "late"}, "2": {}}, marker=marker), ORDERS)
    assert [(c.operation.name, c.key) for c in probe.changes] == [("UPSERT", "1"), ("READ", "2")]
    for wrong in (True, -1, "1", 10**6):
        failed = rows_of(log, table({"1": {}}, marker=lambda wrong=wrong: wrong))
        assert isinstance(failed.error, SourceFailed)
        assert failed.error.__cause__.parameter == "marker"
    assert rows_of(log, table({"1": {}}, marker=lambda: log.head)).error.__cause__.parameter == "marker"
    assert rows_of(log, table({"1": {}}, marker=lambda: log.visible)).error is None


def test_a_log_that_cannot_be_read_between_the_rows_is_not_called_a_failure_of_the_source(log, monkeypatch):
    """F88."""
    failing(monkeypatch, SnapshotReader, "read", OSError("bad sector"))
    error = rows_of(log, table({"1": {}})).error
    assert isinstance(error, LogError)
    assert not isinstance(error, SourceFailed)
    assert "could not be read: bad sector" in str(error)


def test_what_a_source_raises_or_gives_wrongly_ends_the_snapshot(log):
    """F88: and nothing else."""

    def failing(error):
        def pages(request):
            raise error

        return PageSource(entity_type="order", pages=pages)

    for broken in (RuntimeError("no connection"), OSError("gone")):
        error = rows_of(log, failing(broken)).error
        assert isinstance(error, SourceFailed)
        assert (error.entity_type, error.__cause__, error.retryable) == ("order", broken, True)
        assert str(broken) in str(error)
    for rows, wrong in (([("1",)], InvalidOption), ([("", {})], InvalidChange), ([("1", 3)], InvalidChange)):
        source = PageSource(entity_type="order", pages=lambda request, rows=rows: rows)
        error = rows_of(log, source).error
        assert isinstance(error, SourceFailed)
        assert isinstance(error.__cause__, wrong)
        assert not error.retryable
    circling = PageSource(entity_type="order", pages=lambda request: [("1", {})], page_rows=1)
    assert "go on behind" in str(rows_of(log, circling).error)
    full = LogFull(1, 2)  # what a marker may meet
    assert rows_of(log, failing(full)).error is full
    cursor = rows_of(log, table({"1": {}})).changes[0].cursor
    assert isinstance(rows_of(log, table({}, "other"), since=cursor).error, InvalidOption)


def test_what_is_no_source_is_refused(log):
    for wrong in (3, [], [table({}), table({})], [3], log):
        with pytest.raises(InvalidOption, match="source"):
            log.changes(since="state", source=wrong)
    for named in ({"pages": 3}, {"marker": 3}, {"page_rows": 0}, {"page_bytes": 0}, {"as_of": 3}):
        with pytest.raises(InvalidOption):
            PageSource(**{"entity_type": "order", "pages": list, **named})
    with pytest.raises(InvalidChange):
        PageSource(entity_type="", pages=list)
    with pytest.raises(StateOff):
        log.changes(since="state")
    for mode in ("never", "twice"):
        with pytest.raises(InvalidOption, match="snapshot"):
            log.changes(since="state", source=table({}), snapshot=mode)
    with pytest.raises(InvalidOption, match="snapshot"):
        log.changes(since=1, source=table({}), snapshot="initial_only")


def test_a_page_ends_at_its_bytes_and_a_generator_is_closed(log):
    """F88: with one row at least."""
    closed = []

    def pages(request):
        try:
            for key in "abcd":
                if key > (request.after or ""):
                    yield key, {"n": "x" * 100}
        finally:
            closed.append(request.after)

    probe = rows_of(log, PageSource(entity_type="order", pages=pages, page_bytes=150))
    assert keys(probe.changes) == ["a", "b", "c", "d"]
    assert closed == [None, "a", "b", "c", "d"]


def test_no_rows_are_given_where_none_are_asked_for(log):
    """F90: a source may be named always."""
    fill(log, 1, 2)
    source = PageSource(entity_type="order", pages=lambda request: pytest.fail("it was read"))
    probe = subscribed(log, ORDERS, since="earliest", source=source, snapshot="never")
    wait_until(lambda: len(probe.changes) == 2)
    assert {change.operation for change in probe.changes} == {Operation.UPSERT}


@pytest.mark.parametrize("executor", [None, flow.INLINE])
def test_rows_are_given_in_place_of_history_that_is_missing(tmp_path, executor):
    """F90, F92: at the beginning, and in the midst."""
    with ChangeLog.open(tmp_path / "log", **{**QUICK, **RETAIN}, ring_events=4) as log:
        fill(log, 1, 3)
        since = str(log.token(Position(1)))
        behind = Snapshotted(1)
        source = table({"1": {"n": "row"}})
        feed = log.changes(ORDERS, since=since, source=source, snapshot="on_gap")
        feed.subscribe(behind, executor=executor)
        wait_until(lambda: behind.changes)
        while log.oldest == Position(1):
            fill(log, 10, 20)
        wait_until(lambda: log.oldest > Position(2))
        late = subscribed(log, ORDERS, since=since, source=source, snapshot="on_gap", executor=executor)
        for probe in (late, behind):
            probe.request(10**6)
            wait_until(lambda one=probe: one.signals and isinstance(one.signals[-1], SnapshotEnd))
            rows = [change for change in probe.changes if change.operation is Operation.READ]
            assert keys(rows) == ["1"]
            assert probe.error is None
        log.commit([order("last")])
        wait_until(lambda: all(probe.changes[-1].key == "last" for probe in (late, behind)))
        with pytest.raises(StateOff):
            log.changes(since=since, snapshot="on_gap")


@pytest.mark.parametrize("executor", [None, flow.INLINE])
def test_rows_come_again_while_changes_go_on(log, executor):
    """F91: of one collection, between the changes of all; the demand is kept."""
    sources = [table({str(n): {"n": n} for n in range(5)}, page_rows=2), table({"1": {}}, "other")]
    probe = subscribed(log, source=sources, first=6, executor=executor)
    wait_until(lambda: len(probe.changes) == 6)
    probe.request(7)
    log.commit([order("before")])
    wait_until(lambda: len(probe.changes) == 8)
    probe.subscription.refresh(ORDERS)
    wait_until(lambda: len(probe.changes) == 13)
    assert keys(probe.changes[8:]) == ["0", "1", "2", "3", "4"]
    assert {change.operation for change in probe.changes[8:]} == {Operation.READ}
    log.commit([order("after", "other")])
    begins = [signal.snapshot for signal in probe.signals if isinstance(signal, SnapshotBegin)]
    assert len(set(begins)) == 2
    probe.request(2)
    wait_until(lambda: len(probe.changes) == 15)
    assert probe.changes[-1].key == "after"
    assert probe.excess == 0
    assert probe.subscription.following is not None


def test_rows_of_a_range_of_keys_come_again(log):
    """F91: from sources and from the state."""
    probe = rows_of(log, [table({str(n): {} for n in range(7)}), table({"3": {}}, "other")], first=100)
    probe.subscription.refresh(ORDERS, after="2", until="5")
    probe.subscription.refresh(ORDERS, until="1")
    wait_until(lambda: len(probe.changes) == 13, lambda: (keys(probe.changes), probe.signals, probe.error))
    assert keys(probe.changes[8:]) == ["3", "4", "5", "0", "1"]
    for wishes in ((), (ORDERS, Criterion(entity_types={"b"})), (Criterion(keys={"1"}),)):
        with pytest.raises(InvalidOption, match="entity type"):
            probe.subscription.refresh(*wishes, after="1")
    with opened(state=True, state_interval=0.0) as stated:
        stated.commit([order(n) for n in range(7)])
        again = subscribed(stated)
        wait_until(lambda: len(again.changes) == 7)
        again.subscription.refresh(ORDERS, after="2", until="4")
        wait_until(lambda: len(again.changes) == 9)
        assert keys(again.changes[7:]) == ["3", "4"]


def test_rows_come_again_to_a_subscriber_of_batches_too(log):
    """F91."""
    got = []

    class Batched(Probe):
        def on_next_batch(self, changes):
            got.extend(keys(changes))

    probe = Batched(first=10**6)
    log.changes(ORDERS, since="state", source=table({"1": {}})).subscribe(probe)
    wait_until(lambda: got == ["1"])
    probe.subscription.refresh()
    wait_until(lambda: got == ["1", "1"])
    log.commit([order(2)])
    wait_until(lambda: got == ["1", "1", "2"])


def test_again_does_nothing_behind_the_end(log):
    """F91."""
    probe = rows_of(log, table({"1": {}}))
    probe.subscription.cancel()
    probe.subscription.refresh()
    done = rows_of(log, table({"1": {}}), snapshot="initial_only")
    wait_until(lambda: done.completed)
    done.subscription.refresh()
    assert done.subscription.ended
    assert len(done.changes) == 1


def test_a_snapshot_asked_for_while_rows_are_given_follows_them(log):
    """F91."""
    probe = subscribed(log, source=table({"1": {}, "2": {}}), first=1)
    wait_until(lambda: len(probe.changes) == 1)
    probe.subscription.refresh()
    probe.request(100)
    wait_until(lambda: len(probe.changes) == 4)
    assert keys(probe.changes) == ["1", "2", "1", "2"]


def test_a_subscriber_that_raises_gets_nothing_more(log, monkeypatch):
    class Raising(Snapshotted):
        def on_next(self, change, /):
            raise ValueError(change.key)

    class RaisingBatches(Raising):
        def on_next_batch(self, changes):
            raise ValueError(len(changes))

    reported = []
    monkeypatch.setattr(flow.hooks, "on_dropped_error", lambda error, subscriber: reported.append(error))
    for kind in (Raising, RaisingBatches):
        probe = kind(100)
        log.changes(since="state", source=table({"1": {}, "2": {}})).subscribe(probe)
        wait_until(lambda one=probe: one.subscription is not None and one.subscription.ended)
    wait_until(lambda: [str(error) for error in reported] == ["1", "2"])
    wait_until(lambda: not log.statistics().holds)


def test_a_snapshot_that_takes_too_long_is_gone():
    """F126: its hold lives as long as the snapshot, and no longer than ``snapshot_max_duration``."""

    class Clock:
        now_us = SYSTEM_CLOCK.now_us
        ahead = 0.0

        def monotonic(self):
            return SYSTEM_CLOCK.monotonic() + self.ahead

    clock = Clock()
    with opened(snapshot_max_duration=60.0, clock=clock) as log:
        probe = subscribed(log, source=table({"1": {}, "2": {}}), first=1)
        wait_until(lambda: len(probe.changes) == 1)
        assert [hold.name.split()[0] for hold in log.statistics().holds] == ["snapshot"]
        clock.ahead = 61.0
        probe.request(5)
        wait_until(lambda: probe.error is not None)
        assert isinstance(probe.error, SnapshotGone)
        assert "longer than 60 s" in str(probe.error)
        assert len(probe.changes) < 3
        wait_until(lambda: not log.statistics().holds)


def test_closing_the_log_or_the_feed_ends_those_who_wait_for_a_page(log):
    gate, begun = threading.Event(), threading.Event()

    def pages(request):
        begun.set()
        gate.wait(60)
        return []

    feed = log.changes(since="state", source=PageSource(entity_type="order", pages=pages))
    probe = Snapshotted(1)
    feed.subscribe(probe)
    assert begun.wait(60)
    feed.close()
    gate.set()
    wait_until(lambda: probe.error is not None)


def test_so_many_threads_read_sources_and_no_more():
    """F88: whoever leaves is not read for, and others wait for their rows only."""
    gate, began, left = threading.Event(), threading.Semaphore(0), []

    def blocked(request):
        began.release()
        assert gate.wait(60)
        left.append(request)
        return [("1", {})]

    slow = PageSource(entity_type="order", pages=blocked)
    with opened(source_threads=2) as log:
        probes = [subscribed(log, source=slow) for _ in range(4)]
        for _ in range(2):
            assert began.acquire(timeout=60)
        wait_until(lambda: log.statistics().source_waiting == 2)
        names = [thread.name for thread in threading.enumerate() if thread.name.endswith("-rows")]
        assert len(names) == 2
        probes[-1].subscription.cancel()
        wait_until(lambda: log.statistics().source_waiting == 1)
        gate.set()
        wait_until(lambda: sum(len(probe.changes) for probe in probes) == 3)
        assert len(left) == 3
        wait_until(lambda: not log._source_threads._running)


def test_where_the_system_gives_no_thread_the_rows_come_when_it_gives_one(monkeypatch):
    """F88: nothing waits for a thread that never began."""
    refused = []

    class Refused(threading.Thread):
        def start(self):
            refused.append(self)
            raise LogExhausted("threads")

    source = table({"1": {}})
    with opened(source_threads=1) as log:
        with monkeypatch.context() as patched:
            patched.setattr("publishers.snapshots.pages.BackgroundThread", Refused)
            probe = subscribed(log, source=source)
            wait_until(lambda: len(refused) > 1)
            assert not probe.terminals
        wait_until(lambda: len(probe.changes) == 1)
        assert log.statistics().source_waiting == 0
        assert keys(rows_of(log, source).changes) == ["1"]


def test_a_snapshot_goes_on_behind_a_segment_that_it_has_read_whole_and_that_is_gone():
    """F88: the hold is on what comes next, in the segment behind."""

    def write(log, count):
        for _ in range(count):
            fill(log, 1, 20)

    with opened(**RETAIN) as log:
        while len(catalog_of(files_of(log).reader).entries) == 1:
            write(log, 1)
        whole = log.visible - 1  # as many are in the first segment, and no more
    with opened(**RETAIN) as log:

        def pages(request):
            if request.after is None:
                write(log, whole)
                return [("a", {})]
            if request.after == "a":
                while log.oldest == Position(1):
                    write(log, 10)
                assert log.oldest == Position(whole + 1)
                return [("b", {})]
            return []

        probe = rows_of(log, PageSource(entity_type="order", pages=pages, page_rows=1))
        assert not probe.terminals
        assert [change.key for change in probe.changes if change.operation is Operation.READ] == ["a", "b"]
        assert len(probe.changes) == 2 + 21 * log.visible
