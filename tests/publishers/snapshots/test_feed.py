"""The state, then the changes, as a publisher: what a subscriber asks for, gets and is told."""

import threading

import pytest

import flow
from penstock_cdc.errors import (
    HistoryPruned,
    InvalidOption,
    LogClosed,
    PositionForeign,
    PositionMalformed,
    StateOff,
)
from publishers import ChangeLog, Content, Criterion, Operation, Position, View, remove, upsert
from publishers.errors import SnapshotGone
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotCursor, SnapshotEnd
from tests.harness.constants import set_constant, without_bounds
from tests.harness.inside import service_of, writer_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, Probe, fill, opened, order, wait_until

STATED = {"state": True, "state_interval": 0.0}


class Snapshotted(Probe):
    """Also hears of snapshots; ``heard`` has everything in its order."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.heard = []
        self.signals = []

    def on_next(self, change, /):
        self.heard.append(change)
        super().on_next(change)

    def on_snapshot(self, signal):
        with self._signal():
            self.heard.append(signal)
            self.signals.append(signal)


@pytest.fixture
def log():
    with opened(**STATED) as one:
        yield one


def subscribed(log, *wishes, first=10**6, executor=None, **reading):
    probe = Snapshotted(first)
    log.changes(*wishes, **{"since": "state", "content": Content.BODY, **reading}).subscribe(
        probe, executor=executor
    )
    wait_until(lambda: probe.subscription is not None)
    return probe


def keys(changes):
    return [change.key for change in changes]


@pytest.mark.parametrize("executor", [None, flow.INLINE])
def test_rows_come_first_and_then_every_change(log, executor, monkeypatch):
    """F88, F93, F146: rows say READ and carry the state; nothing after the end does."""
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 2)
    fill(log, 2, 5)
    probe = subscribed(log, executor=executor)
    wait_until(lambda: len(probe.signals) == 5, lambda: probe.heard)
    log.commit([order(9)])
    wait_until(lambda: len(probe.changes) == 7, lambda: probe.heard)
    rows, changes = probe.changes[:5], probe.changes[5:]
    assert {change.operation for change in rows} == {Operation.READ}
    assert [(c.key, c.position, c.after, c.entry_version, c.body) for c in rows] == [
        (str(n), Position(3), Position(3), 2, {"n": str(n)}) for n in range(5)
    ]
    assert [change.position for change in changes] == [Position(3), Position(3, 1)]
    kinds = [type(one).__name__ for one in probe.heard]
    row, chunk = ["SnapshotChange"], ["ChunkEnd"]
    assert kinds == [
        "SnapshotBegin",
        *row * 2,
        *chunk,
        *row * 2,
        *chunk,
        *row,
        *chunk,
        "SnapshotEnd",
        "Change",
        "Change",
    ]
    begin, end = probe.signals[0], probe.signals[-1]
    assert begin == SnapshotBegin(end.snapshot, Position(3))
    assert end == SnapshotEnd(begin.snapshot, Position(3))
    assert (probe.overlaps, probe.excess) == (0, 0)


def test_an_empty_state_ends_at_once(log):
    """F88."""
    probe = subscribed(log)
    wait_until(lambda: len(probe.signals) == 3)
    log.commit([order(1)])
    wait_until(lambda: len(probe.changes) == 2)
    assert probe.positions == [Position(1), Position(1, 1)]


def test_the_modes_are_rows_then_changes_rows_only_and_no_rows(log):
    """F90."""
    fill(log, 1, 3)
    only = subscribed(log, snapshot="initial_only")
    wait_until(lambda: only.completed)
    assert keys(only.changes) == ["0", "1", "2"]
    initial = subscribed(log)
    never = subscribed(log, since=None)
    wait_until(lambda: len(initial.signals) == 3)
    log.commit([order(7)])
    wait_until(lambda: never.changes and len(initial.changes) == 5)
    assert keys(never.changes) == [None, "7"]
    assert never.signals == []
    with pytest.raises(InvalidOption, match="snapshot"):
        log.changes(since="state", snapshot="twice")


def test_rows_and_changes_are_counted_against_the_demand(log, monkeypatch):
    """F88: over the hand-over too."""
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 3)
    fill(log, 1, 7)
    probe = subscribed(log, Criterion(entity_types={"order"}), first=1)
    for count in range(1, 8):
        wait_until(lambda n=count: len(probe.changes) == n, lambda: probe.heard)
        assert probe.excess == 0
        if count < 7:
            probe.request(1)
    wait_until(lambda: isinstance(probe.heard[-1], SnapshotEnd), lambda: probe.heard)
    log.commit([order(1), order(2), order(3)])
    probe.request(2)
    wait_until(lambda: len(probe.changes) == 9)
    assert probe.subscription.following.demand == 0
    probe.request(1)
    wait_until(lambda: len(probe.changes) == 10)
    assert keys(probe.changes[7:]) == ["1", "2", "3"]


def test_a_snapshot_goes_on_behind_any_row(log, monkeypatch):
    """F89: what was given is not given again, and the rest is of later."""
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 2)
    fill(log, 1, 5)
    whole = subscribed(log, snapshot="initial_only")
    wait_until(lambda: whole.completed)
    log.commit([upsert("order", "4", {"n": "later"})])
    log.state.wait(log.visible)
    ends = [signal.cursor for signal in whole.signals if isinstance(signal, ChunkEnd)]
    for cursor in [change.cursor for change in whole.changes] + ends:
        assert SnapshotCursor.parse(str(cursor)) == cursor
        rest = subscribed(log, Criterion(entity_types={"order"}), since=str(cursor), snapshot="initial_only")
        wait_until(lambda probe=rest: probe.completed)
        rows = [change for change in rest.changes if change.operation is Operation.READ]
        assert keys(rows) == [key for key in "01234" if key > cursor.last.key.decode()]
        assert [change.position for change in rest.changes if change not in rows] == [Position(2, 1)]
        assert rest.signals[0].snapshot == cursor.snapshot


def test_cursors_are_positions_from_the_end_on(log):
    """F89."""
    fill(log, 1)
    probe = subscribed(log)
    wait_until(lambda: len(probe.signals) == 3)
    log.commit([order(2)])
    wait_until(lambda: len(probe.changes) == 3)
    assert log.cursor(probe.changes[0]).startswith("n1:")
    assert log.cursor(probe.changes[2]) == str(log.token(Position(3)))
    with pytest.raises(InvalidOption):
        log.cursor("1:0")


def test_criteria_choose_rows_by_type_key_and_value(log):
    """F88: what concerns a change only does not keep rows away."""
    log.commit([upsert(kind, f"{kind}{n}", {"n": n}) for kind in "ab" for n in range(4)])

    def rows(*wishes):
        probe = subscribed(log, *wishes, snapshot="initial_only")
        wait_until(lambda: probe.completed, lambda: probe.error)
        return keys(probe.changes)

    assert rows(Criterion(entity_types={"b"})) == ["b0", "b1", "b2", "b3"]
    assert rows(Criterion(keys={"a1", "b2"})) == ["a1", "b2"]
    assert rows(Criterion(key_globs={"*3"})) == ["a3", "b3"]
    assert rows(Criterion(entity_types={"a"}, where="n >= 2")) == ["a2", "a3"]
    assert rows(Criterion(entity_types={"a"}, operations={Operation.REMOVE})) == ["a0", "a1", "a2", "a3"]
    assert rows(Criterion(entity_types={"a"}, changed="n"), Criterion(keys={"b0"})) == [
        "a0",
        "a1",
        "a2",
        "a3",
        "b0",
    ]
    assert rows(Criterion(operations={Operation.TRANSACTION})) == []
    assert rows(Criterion(operations={Operation.TRUNCATE}), Criterion(keys={"a1"})) == ["a1"]
    assert rows(Criterion(areas={"SCHEMA"})) == []


def test_rows_are_seen_through_the_view(log):
    """F88."""
    log.commit([upsert("order", "1", {"a": 1, "b": 2}, meta={"by": "ann"})])
    seen = subscribed(log, fields=["a"], snapshot="initial_only")
    header = subscribed(log, content=Content.HEADER, view=View.of(Content.HEADER), snapshot="initial_only")
    wait_until(lambda: seen.completed and header.completed)
    assert [(c.body, c.meta) for c in seen.changes] == [({"a": 1}, {"by": "ann"})]
    assert [c.body_bytes for c in header.changes] == [None]


def test_a_row_is_as_new_as_the_changes_before_it(log, monkeypatch):
    """F88: changes come between pages, and rows behind them contain them."""
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 1)
    fill(log, 1, 3)
    probe = subscribed(log, Criterion(entity_types={"order"}), first=1)
    wait_until(lambda: probe.changes)
    log.commit([remove("order", "0"), upsert("order", "1", {"n": "new"}), upsert("order", "9", {})])
    log.state.wait(2)
    probe.request(100)
    wait_until(lambda: isinstance(probe.heard[-1], SnapshotEnd), lambda: probe.heard)
    assert [(c.operation.name, c.key) for c in probe.changes] == [
        ("READ", "0"),
        ("REMOVE", "0"),
        ("UPSERT", "1"),
        ("UPSERT", "9"),
        ("READ", "1"),
        ("READ", "2"),
        ("READ", "9"),
    ]
    assert probe.changes[4].body == {"n": "new"}


def test_what_was_committed_before_is_in_the_rows(log):
    """F88: one who subscribes behind his own commit finds it among the rows, however late the state is."""
    for number in range(20):
        log.commit([order(number)])
        probe = subscribed(log, snapshot="initial_only")
        wait_until(lambda one=probe: one.completed)
        assert len(probe.changes) == number + 1
        assert {change.operation for change in probe.changes} == {Operation.READ}


def test_a_batch_subscriber_gets_rows_in_batches(log):
    fill(log, 1, 10)
    got = []

    class Batched(Probe):
        def on_next_batch(self, changes):
            got.append(keys(changes))

    probe = Batched(first=10**6)
    log.changes(since="state", snapshot="initial_only").subscribe(probe, batch_events=4)
    wait_until(lambda: probe.completed)
    assert [len(batch) for batch in got] == [4, 4, 2]


def test_until_ends_it_behind_the_rows(log):
    """F90."""
    fill(log, 2)
    probe = subscribed(log, until=3)
    wait_until(lambda: len(probe.signals) == 3)
    fill(log, 2)
    wait_until(lambda: probe.completed)
    assert probe.positions[-1] == Position(3, 1)
    late = subscribed(log, until=1)
    wait_until(lambda: late.completed)
    assert keys(late.changes) == ["0"]


def test_a_slow_subscriber_holds_history_and_no_transaction(log, monkeypatch):
    """F126, F88: the file of the state can be brought up to date beside it, and its hold goes with it."""
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 2)
    fill(log, 1, 5)
    probe = subscribed(log, first=1)
    wait_until(lambda: probe.changes)
    names = {hold.name: hold for hold in log.statistics().holds}
    (name,) = [name for name in names if name.startswith("snapshot ")]
    assert names[name].position == Position(2)
    busy, *_ = writer_of(log.state._table).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0
    probe.subscription.cancel()
    wait_until(lambda: len(log.statistics().holds) == 1)
    assert probe.subscription.ended
    assert not service_of(log).guests


def test_what_cannot_be_gone_on_with_is_refused(log, tmp_path):
    """F89, F92."""
    fill(log, 1, 3)
    probe = subscribed(log, snapshot="initial_only")
    wait_until(lambda: probe.completed)
    cursor = str(probe.changes[0].cursor)
    for text in (
        "n1:",
        "n1:x::y",
        cursor + "0:",
        cursor.replace("n1:", "n1:zz"),
        cursor[:-8],
        "n1:" + "0" * 16 + ":a:b",
    ):
        with pytest.raises(PositionMalformed):
            log.changes(since=text)
    with (
        ChangeLog.open(tmp_path / "other", **without_bounds({**QUICK, **STATED})) as other,
        pytest.raises(PositionForeign),
    ):
        other.changes(since=cursor)
    with ChangeLog.open(tmp_path / "plain", **QUICK) as plain, pytest.raises(StateOff):
        plain.changes(since="state")
    with pytest.raises(InvalidOption, match="as_"):
        log.changes(since="state", as_=View)


def test_a_snapshot_that_is_gone_says_so(tmp_path):
    """F89, F92: begin again."""
    with ChangeLog.open(tmp_path / "log", **without_bounds({**QUICK, **STATED, **RETAIN})) as log:
        fill(log, 1, 3)
        probe = subscribed(log, snapshot="initial_only")
        wait_until(lambda: probe.completed)
        cursor = probe.changes[0].cursor
        feed = log.changes(since=cursor)
        while log.oldest == Position(1):
            fill(log, 10, 20)
        wait_until(lambda: log.oldest > Position(2))
        with pytest.raises(SnapshotGone, match="begin a new one") as caught:
            log.changes(since=str(cursor))
        assert isinstance(caught.value, HistoryPruned)
        assert caught.value.snapshot == cursor.snapshot
        late = Snapshotted(1)
        feed.subscribe(late)
        wait_until(lambda: late.error is not None)
        assert isinstance(late.error, SnapshotGone)


def test_closing_the_log_ends_a_snapshot(tmp_path):
    log = ChangeLog.open(tmp_path / "log", **without_bounds({**QUICK, **STATED}))
    fill(log, 1, 3)
    probe = subscribed(log, first=1)
    wait_until(lambda: probe.changes)
    log.close()
    wait_until(lambda: probe.error is not None)
    assert isinstance(probe.error, LogClosed)
    late = Snapshotted(1)
    with pytest.raises(LogClosed):
        log.changes(since="state").subscribe(late)


def test_closing_the_feed_ends_its_subscribers_before_and_behind_the_rows(log):
    fill(log, 1, 3)
    feed = log.changes(since="state")
    before, behind = Snapshotted(1), Snapshotted(100)
    feed.subscribe(before)
    feed.subscribe(behind)
    wait_until(lambda: before.changes and behind.changes and behind.subscription.following is not None)
    feed.close()
    wait_until(lambda: before.error is not None and behind.completed)
    late = Snapshotted(1)
    feed.subscribe(late)
    wait_until(lambda: isinstance(late.error, LogClosed))


def test_a_cancel_behind_the_rows_ends_what_follows(log):
    fill(log, 1, 3)
    probe = subscribed(log)
    wait_until(lambda: probe.subscription.following is not None)
    assert probe.subscription.cursor is None
    probe.subscription.cancel()
    wait_until(lambda: not log.statistics().subscription_count)
    assert probe.subscription.ended


def test_a_wrong_request_ends_it(log):
    fill(log, 1, 3)
    probe = subscribed(log, first=0)
    probe.subscription.request(0)
    wait_until(lambda: isinstance(probe.error, ValueError))


def test_loops_get_rows_and_changes(log):
    """F88."""
    fill(log, 1, 2)
    found = []
    stop = threading.Event()

    def read():
        with flow.iter_blocking(log.changes(Criterion(entity_types={"order"}), since="state")) as changes:
            for change in changes:
                found.append(change.key)
                if len(found) == 2:
                    stop.set()
                if len(found) == 3:
                    return

    reader = threading.Thread(target=read)
    reader.start()
    assert stop.wait(60)
    log.commit([order(7)])
    reader.join(60)
    assert found == ["0", "1", "7"]


def test_the_time_of_reading_rows_is_charged_to_the_executor_if_its_owner_pays():
    """F147: and while the owner is beyond its share, such reads wait for each other."""

    class Owner:
        heavy = True
        charged_for = 0

        def submit(self, task):
            task()

        def charged(self, work):
            self.charged_for += 1
            return work()

    owner = Owner()
    with opened(**STATED) as log:
        fill(log, 2, 5)
        queue, served = service_of(log).replayer._queue_of, []
        service_of(log).replayer._queue_of = lambda task: served.append(task.heavy) or queue(task)
        probe = subscribed(log, executor=owner)
        wait_until(lambda: len(probe.signals) == 3, lambda: probe.heard)
        assert keys(probe.changes) == [str(n) for n in range(5)]
    assert 1 <= owner.charged_for <= len(served)
    assert all(served)
