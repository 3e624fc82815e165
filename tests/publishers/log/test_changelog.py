"""Opening, positions, closing."""

import asyncio
import threading
from uuid import uuid4

import pytest

import flow
from penstock_cdc.errors import (
    InvalidChange,
    InvalidOption,
    KeyTooLong,
    LogBusy,
    LogClosed,
    LogReadOnly,
    NotALog,
    PositionAhead,
    PositionForeign,
    PositionForked,
    PositionMalformed,
    TransactionTooLarge,
)
from penstock_cdc.types import PositionToken
from publishers import ChangeLog, Criterion, LogOptions, Mutation, Operation, Position, truncate, upsert
from publishers.mutations.mutation import columns_of
from publishers.wal.format.rows import ROWS_MAX
from tests.harness.inside import files_of, house_step_of, housekeeping_of, service_of
from tests.publishers.support import (
    QUICK,
    ManualExecutor,
    Probe,
    everything,
    fill,
    in_threads,
    opened,
    order,
    scratch,
    wait_until,
)


def test_what_was_committed_is_there_after_reopening():
    """F36."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 3, 2)
        before, log_id = log.history(limit=100).changes, log.log_id
    with ChangeLog.open(path, **QUICK) as log:
        assert log.history(limit=100).changes == before
        assert (log.log_id, log.epoch, log.head) == (log_id, 2, Position(4))
        assert log.commit([order(1)]).version == 4


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(InvalidOption, match="rings"):
        ChangeLog.open(scratch() / "log", rings=3)
    with pytest.raises(InvalidOption, match="ring_events"):
        ChangeLog.open(scratch() / "log", ring_events=0)
    with ChangeLog.open(scratch() / "log", options=LogOptions(ring_events=7), sync="os") as log:
        assert (log.options.ring_events, log.options.sync) == (7, "os")


def test_one_opening_writes(log):
    """F123."""
    with pytest.raises(LogBusy) as caught:
        ChangeLog.open(log.path)
    assert caught.value.path == log.path
    log.close()
    with ChangeLog.open(log.path, sync="os"):
        pass


def test_what_is_no_log_is_refused(tmp_path):
    with pytest.raises(NotALog):
        ChangeLog.open(tmp_path / "missing", read_only=True)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "notes.txt").write_text("mine")
    for read_only in (False, True):
        with pytest.raises(NotALog):
            ChangeLog.open(tmp_path / "else", read_only=read_only)
    assert (tmp_path / "else" / "notes.txt").read_text() == "mine"


def test_a_token_names_the_history_of_its_position():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 3)
        token = log.token(Position(2, 1))
        (epoch,) = files_of(log).epochs
        assert token == PositionToken(log.log_id, 1, Position(2, 1), epoch.random)
        assert log.position_of(str(token)) == log.position_of(token) == Position(2, 1)
        assert log.position_of(str(log.token(log.head))) == log.head
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 1)
        assert [log.token(Position(v)).epoch for v in (1, 3, 4, 5)] == [1, 1, 1, 2]
        assert log.position_of(str(token)) == Position(2, 1)
        assert log.position_of(token._replace(position=Position(4, 0))) == Position(4, 0)


def test_a_token_is_at_most_sixteen_characters_longer_than_in_format_1(log):
    """F144."""
    token = log.token(log.head)
    assert token.random
    assert len(str(token)) <= len(str(token._replace(random=0))) + 16


def test_a_place_at_the_head_survives_openings_in_which_nobody_commits():
    """F144: nothing stands between it and the next change, whoever opens the log meanwhile."""
    path = scratch() / "log"
    places = {}
    with ChangeLog.open(path, **QUICK) as log:
        places[str(log.token(log.head))] = log.head
        fill(log, 3)
        places[str(log.token(log.head))] = log.head
    for _ in range(3):
        with ChangeLog.open(path, **QUICK) as log:
            places[str(log.token(log.head))] = log.head
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 1)
        assert [log.position_of(text) for text in places] == [*places.values()] == [Position(1), Position(4)]


def test_each_position_that_is_none_of_the_log_has_its_error():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 3)
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 2)
        with pytest.raises(PositionMalformed):
            log.position_of("5:0")
        other = uuid4()
        with pytest.raises(PositionForeign) as foreign:
            log.changes(since=str(PositionToken(other, 1, Position(1))))
        assert (foreign.value.log_id, foreign.value.expected) == (other, log.log_id)
        with pytest.raises(PositionForked) as forked:
            log.position_of(log.token(Position(4, 0))._replace(position=Position(4, 1)))
        assert (forked.value.epoch, forked.value.end) == (1, Position(4, 0))
        with pytest.raises(PositionAhead) as ahead:
            log.position_of(log.token(Position(6, 1)))
        assert ahead.value.head == Position(6, 0)
        for strange in (
            PositionToken(log.log_id, 3, Position(2)),
            PositionToken(log.log_id, 2, Position(2), 5),
        ):
            with pytest.raises(PositionForked) as forked:
                log.position_of(strange)
            assert forked.value.end is None
            assert "is a copy or was restored from one" in str(forked.value)


def test_a_transaction_commits_on_leaving_and_nothing_on_an_exception(log):
    """F117, F21."""
    with log.transaction(meta={"user": "ann"}, producer=("etl", 1)) as tx:
        tx.upsert("order", "42", {"total": "10.00"})
        tx.remove("order", "41")
        tx.extend([order(1)])
        assert len(tx) == 3
        with pytest.raises(RuntimeError, match="not committed"):
            _ = tx.commit
    assert (tx.commit.version, tx.commit.changes) == (1, 4)
    assert log.history(limit=1).changes[0].meta == {"user": "ann"}

    def fail():
        with log.transaction() as tx:
            tx.upsert("order", "43", {})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert log.head == Position(2)


async def test_commit_async_leaves_the_loop_free(log):
    commits = await asyncio.gather(*(log.commit_async([order(n)], producer=("p", n)) for n in range(5)))
    assert all(commit.version for commit in commits if not commit.duplicate)
    assert log.head.version == 1 + sum(not commit.duplicate for commit in commits)


async def test_a_cancelled_wait_does_not_undo_the_commit(log):
    task = asyncio.create_task(log.commit_async([order(1)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, lambda: log.head == Position(2))


@pytest.mark.parametrize(
    "producer", ["etl", ("etl",), ("", 1), (7, 1), ("etl", -1), ("etl", True), ("etl", 2**63), ["etl", 1]]
)
def test_a_producer_that_is_none_is_refused(log, producer):
    with pytest.raises(InvalidChange, match="producer"):
        log.commit([order(1)], producer=producer)
    assert log.head == Position(1)


def test_a_transaction_above_a_bound_is_refused_and_leaves_nothing():
    """F43, F68."""
    with opened(
        max_change_bytes=1024, max_transaction_bytes=4096, max_transaction_changes=ROWS_MAX + 1
    ) as log:
        for mutations, option in (
            ([upsert("o", "1", {"x": "y" * 2000})], "max_change_bytes"),
            ([upsert("o", "1", {"x": "y" * 900})] * 5, "max_transaction_bytes"),
            ([order(1)] * (ROWS_MAX + 2), "max_transaction_changes"),
        ):
            with pytest.raises(TransactionTooLarge, match=option):
                log.commit(mutations)
        assert log.head == Position(1)
        assert log.commit([order(1)] * 5).version == 1


def test_a_key_above_its_bound_is_refused_by_name_and_a_longer_stored_one_is_read():
    """F147: one change and several, and columns; what an earlier option allowed is read, matched and delivered."""
    path = scratch() / "log"
    long = "k" * 5_000
    with ChangeLog.open(path, max_key_bytes=8_192, **QUICK) as log:
        log.commit([upsert("o", long, {})])
    with ChangeLog.open(path, **QUICK) as log:
        for rows in ([upsert("o", "k" * 1_025, {})], [order(1), upsert("o", "k" * 1_025, {}), order(2)]):
            with pytest.raises(KeyTooLong, match="1025 bytes, but max_key_bytes is 1024") as caught:
                log.commit(rows)
            assert (caught.value.option, caught.value.value, caught.value.limit) == (
                "max_key_bytes",
                1_025,
                1_024,
            )
        assert log.head == Position(2)
        log.commit([upsert("o", "k" * 1_024, {})] * 2)
        found = log.history(
            Criterion(key_patterns={"k{2}k*"}, operations={Operation.UPSERT}), limit=9
        ).changes
        assert [len(change.key) for change in found] == [5_000, 1_024, 1_024]


def test_an_empty_key_is_refused_however_it_comes_and_a_stored_one_is_read(log, monkeypatch):
    """One change and several, and columns, however they were made. A TRUNCATE needs no key."""
    empty = Mutation(Operation.UPSERT, "o", b"", b"{}")
    for commit in (
        lambda: log.commit([empty]),
        lambda: log.commit([order(1), empty, truncate("o")]),
        lambda: log.commit_columns([columns_of([order(1)]), columns_of([truncate("o"), empty])]),
    ):
        with pytest.raises(InvalidChange, match=r"key is b'', but must be at least one character"):
            commit()
    assert log.head == Position(1, 0)
    log.commit([truncate("o")])
    log.commit([truncate("o")] * 2)
    monkeypatch.setattr("publishers.log.transaction_writer.check_columns", lambda columns: columns)
    log.commit_columns([columns_of([empty, order(1)])])
    found = log.history(Criterion(operations={Operation.UPSERT})).changes
    assert [change.key for change in found] == ["", order(1).key.decode()]


def test_a_read_only_opening_cannot_write_and_sees_what_the_owner_shows():
    """F50, F51."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as owner, ChangeLog.open(path, read_only=True, tail_poll=0.001) as log:
        probe = Probe(first=10_000)
        log.changes().subscribe(probe, executor=flow.INLINE)
        assert log.read_only
        assert not owner.read_only
        for write in (lambda: log.commit([order(1)]), log.transaction, lambda: log.produced("p")):
            with pytest.raises(LogReadOnly):
                write()
        fill(owner, 30, 3)
        probe.wait_for(120)
        assert probe.positions == everything(owner)
        wait_until(lambda: log.head == owner.head)
        assert everything(log) == everything(owner)
        assert log.epoch == owner.epoch
        assert log.token(Position(5)) == owner.token(Position(5))
    assert probe.completed


@pytest.mark.parametrize("ring_bytes", [1, 3000, 10**6])
def test_a_follower_far_behind_resyncs_from_the_log(ring_bytes):
    """F50, F65."""
    path = scratch() / "log"
    with (
        ChangeLog.open(path, **QUICK) as owner,
        ChangeLog.open(path, read_only=True, tail_poll=60.0, ring_bytes=ring_bytes) as log,
    ):
        probes = [Probe(first=10_000) for _ in range(3)]
        for probe in probes:
            log.changes().subscribe(probe, executor=flow.INLINE)
        for _ in range(5):
            fill(owner, 20, 3)
            housekeeping_of(log).poke()
            wait_until(lambda: log.head == owner.head)
        for probe in probes:
            probe.wait_for(400)
            assert probe.positions == everything(owner)


def test_a_follower_goes_on_behind_pruned_history():
    """D5, E37: what retention took while it looked away is told, and the rest is served."""
    path = scratch() / "log"
    options = {**QUICK, "segment_bytes": 65_536, "retain_bytes": 65_536, "retain_age": None}
    with (
        ChangeLog.open(path, **options) as owner,
        ChangeLog.open(path, read_only=True, tail_poll=60.0) as log,
    ):
        fill(owner, 1)
        housekeeping_of(log).poke()
        wait_until(lambda: log.head == owner.head)
        late = Probe(first=10**6)
        log.changes().subscribe(late, executor=flow.INLINE)
        housekeeping_of(log).close()  # it looks away, although the owner rings
        for _ in range(4):
            fill(owner, 300, 5)
            housekeeping_of(owner).poke()
        wait_until(lambda: owner.oldest > Position(2), lambda: owner.oldest)
        house_step_of(log)()
        assert log.head == owner.head
        late.wait_for_end()
        assert "no longer kept" in str(late.error)
        fresh = Probe(first=100)
        log.changes().subscribe(fresh, executor=flow.INLINE)
        fill(owner, 1)
        house_step_of(log)()
        fresh.wait_for(2)


def test_close_completes_who_has_everything_and_tells_the_others_where_to_resume():
    """E45, D14: exactly one terminal signal for each."""
    with opened(ring_events=8) as log:
        caught_up, slow, behind, never = Probe(first=10_000), Probe(first=3), Probe(first=1), Probe()
        for probe in (caught_up, slow, behind):
            log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 3)
        log.changes(since=log.oldest).subscribe(never, executor=flow.INLINE)
        log.close()
        assert caught_up.completed
        for probe, position in ((slow, Position(2, 1)), (behind, Position(1, 1)), (never, Position(1, 0))):
            assert isinstance(probe.error, LogClosed), probe.state()
            assert probe.error.position == position
            assert probe.error.retryable
        assert all(probe.terminals == 1 for probe in (caught_up, slow, behind, never))
        log.close()
        assert not service_of(log).registry.publishers()


@pytest.mark.parametrize("where", ["pool", "inline", "manual"])
def test_close_delivers_what_is_visible_and_asked_for_however_many_turns_it_takes(where):
    """Invariant 11: completed if everything visible was delivered, even if that takes more than one turn."""
    others = set(threading.enumerate())
    with opened() as log:
        executor = {"pool": None, "inline": flow.INLINE, "manual": ManualExecutor()}[where]
        go = threading.Event()

        class Gate(Probe):
            def take(self, change):
                if where == "pool":
                    assert go.wait(60)
                super().take(change)

        probe = Gate(first=10**6)
        log.changes().subscribe(probe, executor=executor, batch_events=2)
        fill(log, 50)
        log.close()
        go.set()
        if where == "manual":
            executor.run_all()
        probe.wait_for_end()
        assert probe.completed, probe.state()
        assert len(probe.positions) == 100
    wait_until(lambda: not any(t.name.startswith("penstock-log") for t in {*threading.enumerate()} - others))


def test_everything_is_refused_after_close():
    with opened() as log:
        pass
    for call in (lambda: log.commit([]), log.transaction, log.history, lambda: log.produced("p")):
        with pytest.raises(LogClosed):
            call()
    assert "closed" in repr(log)


def test_a_shell_shows_what_a_feed_reads():
    with opened() as log:
        assert (
            repr(log.changes(since="earliest", until=3))
            == f"<ChangeFeed of {log.name} since earliest until 3>"
        )
        assert repr(log.changes(since=Position(1))) == f"<ChangeFeed of {log.name} since 1:0>"


def test_a_subscriber_may_close_the_log_from_a_signal():
    """No lock or gate is held while a subscriber's code runs."""
    for executor in (flow.INLINE, None):
        with opened() as log:

            class Closing(Probe):
                def take(self, change):
                    super().take(change)
                    log.close()

            probe = Closing(first=100)
            log.changes().subscribe(probe, executor=executor)
            log.commit([order(1)])
            probe.wait_for_end()
            assert probe.terminals == 1


def test_a_subscriber_may_commit_and_subscribe_from_a_signal():
    """No lock or gate is held while a subscriber's code runs, nor while it is told of its state."""
    with opened(ring_events=2) as log:
        inner = []

        class Busy(Probe):
            def take(self, change):
                super().take(change)
                if len(self.positions) == 1:
                    log.commit([order("inner")])
                    inner.append(Probe(first=100))
                    log.changes().subscribe(inner[-1], executor=flow.INLINE)

            def on_state(self, state):
                super().on_state(state)
                if len(self.states) == 1:
                    log.commit([order("state")])

        probe = Busy()
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 3)
        assert probe.states == ["RESYNC"]
        probe.request(1000)
        probe.wait_for(2 * (log.head.version - 1))
        wait_until(lambda: len(probe.positions) == 2 * (log.head.version - 1))
        assert probe.positions == everything(log)
        assert inner


def test_close_against_commits_and_subscribes_ends_each_subscription_once():
    """E46, E65: close during everything."""
    for _ in range(15):
        with opened(ring_events=4) as log:
            probes = []
            stop = threading.Event()

            def commit():
                try:
                    while not stop.is_set():  # noqa: B023 - joined inside
                        fill(log, 1)
                except LogClosed:
                    return

            def subscribe():
                for number in range(30):
                    probe = Probe(first=(number % 3) * 5)
                    executor = flow.INLINE if number % 2 else None
                    since = log.oldest if number % 5 == 0 else None
                    log.changes(since=since).subscribe(probe, executor=executor)
                    probes.append(probe)  # noqa: B023

            def close():
                wait_until(lambda: len(probes) > 10)  # noqa: B023
                log.close()
                stop.set()  # noqa: B023

            in_threads(commit, commit, subscribe, close)
            for probe in probes:
                probe.wait_for_end()
                assert probe.clean
                assert probe.completed or isinstance(probe.error, LogClosed), probe.state()
            assert not service_of(log).registry.publishers()
