"""Commits that are durable and withheld: shown with ``publish``, dropped with ``forget_after``."""

import asyncio
import contextlib
import errno
import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import flow
from penstock_cdc.errors import (
    AlreadyVisible,
    InvalidOption,
    LogClosed,
    LogFailed,
    LogForked,
    LogFull,
    LogReadOnly,
    NoSuchVersion,
    PositionForked,
)
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Position, upsert
from tests.harness.inside import schemas_of, service_of
from tests.publishers.support import QUICK, Probe, everything, fill, in_threads, opened, order, wait_until


def watching(log, *, first=10**6, **options):
    probe = Probe(first=first)
    log.changes(**options).subscribe(probe, executor=flow.INLINE)
    return probe


def versions(probe):
    return [position.version for position in probe.positions if not position.index]


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_nothing_withheld_is_delivered_before_it_is_published(sync):
    """F28, E19: with everything that comes behind it; under every policy."""
    with opened(sync=sync) as log:
        probe = watching(log)
        fill(log, 1)
        assert log.commit([order(2)], visible=False).version == 2
        fill(log, 2)
        wait_until(lambda: log.durable == 4)
        wait_until(lambda: log.visible == 1)
        wait_until(lambda: versions(probe) == [1])
        assert log.withheld == range(2, 5)
        assert log.head == Position(2)
        assert [change.version for change in log.history().changes] == [1, 1]
        log.publish(2)
        assert log.visible == log.durable == 4
        assert versions(probe) == [1, 2, 3, 4]
        assert log.withheld is None
        assert probe.positions == everything(log)
        fill(log, 1)
        wait_until(lambda: versions(probe) == [1, 2, 3, 4, 5])


def test_publish_shows_ordinary_commits_up_to_the_next_withheld_one(log):
    """F28, invariant 2, literally."""
    probe = watching(log)
    for visible in (True, False, True, False, True, True, False):
        log.commit([order(1)], visible=visible)
    assert versions(probe) == [1]
    log.publish(1)
    assert versions(probe) == [1]
    log.publish(2)
    assert versions(probe) == [1, 2, 3]
    log.publish(2)
    assert versions(probe) == [1, 2, 3]
    assert log.withheld == range(4, 8)
    log.publish(5)
    assert versions(probe) == [1, 2, 3, 4, 5, 6]
    log.publish(7)
    assert versions(probe) == [1, 2, 3, 4, 5, 6, 7]
    assert log.withheld is None


async def test_every_way_to_commit_can_withhold(log):
    """F28."""
    with log.transaction(visible=False) as tx:
        tx.upsert("order", "1", {"n": 1})
        tx.upsert("order", "2", {"n": 2})
    done = await log.commit_async([order(3)], visible=False)
    assert (tx.commit.version, done.version) == (1, 2)
    assert log.withheld == range(1, 3)
    log.publish(done.version)
    assert log.withheld is None
    assert len(everything(log)) == 5


@pytest.mark.parametrize("where", ["inline", "pool", "loop"])
def test_whoever_receives_a_change_can_read_the_state_that_holds_it(where):
    """F28: the writer commits, brings its own state up to date, and only then publishes."""
    store, wrong = {}, []

    class Reader(Probe):
        def take(self, change):
            if change.key is not None and store.get(change.key, 0) < change.body["n"]:
                wrong.append((change.position, store.get(change.key)))
            super().take(change)

    def write(log):
        for number in range(1, 60):
            done = log.commit([upsert("order", str(number % 7), {"n": number})], visible=False)
            store[str(number % 7)] = number
            log.publish(done.version)

    with opened() as log:
        reader = Reader(first=10**6)
        feed = log.changes(content="BODY")
        if where == "loop":

            async def on_a_loop():
                feed.subscribe(reader, executor=asyncio.get_running_loop())
                await asyncio.to_thread(write, log)
                await asyncio.to_thread(reader.wait_for, 118)

            asyncio.run(on_a_loop())
        else:
            with ThreadPoolExecutor(2) as pool:
                feed.subscribe(reader, executor=flow.INLINE if where == "inline" else pool)
                write(log)
                reader.wait_for(118)
        assert not wrong
        assert reader.clean
        assert reader.error is None


def test_a_failed_batch_that_is_repeated_is_delivered_once(log):
    """E20: what was forgotten is never seen, and its producer may commit it again."""
    probe = watching(log)
    fill(log, 1)
    before = log.head.version - 1
    for number in range(3):
        log.commit([order(f"first {number}")], producer=("batch", number), visible=False)
    token = log.token(Position(4, 1))
    epoch = log.epoch
    log.forget_after(before)
    assert (log.visible, log.durable, log.withheld) == (1, 1, None)
    assert log.epoch == epoch + 1
    assert log.produced("batch") is None
    for number in range(3):
        done = log.commit([order(f"again {number}")], producer=("batch", number), visible=False)
        assert (done.version, done.duplicate) == (number + 2, False)
    log.publish(4)
    assert [change.key for change in probe.changes if change.key] == ["0", "again 0", "again 1", "again 2"]
    assert probe.positions == everything(log)
    # A place among what was forgotten is none among what has come instead.
    with pytest.raises(PositionForked):
        log.position_of(token)
    assert log.position_of(token._replace(position=Position(2))) == Position(2)
    assert [log.token(Position(2, index)).epoch for index in (0, 1)] == [epoch, epoch + 1]


def test_what_is_visible_cannot_be_forgotten(log):
    """E20: the error names both versions."""
    fill(log, 3)
    log.commit([order(1)], visible=False)
    with pytest.raises(AlreadyVisible) as caught:
        log.forget_after(2)
    assert (caught.value.version, caught.value.visible) == (2, 3)
    assert "2" in str(caught.value)
    assert "3" in str(caught.value)
    assert log.withheld == range(4, 5)
    log.forget_after(4)
    assert log.withheld == range(4, 5)
    log.forget_after(3)
    log.forget_after(3)
    assert log.withheld is None
    with pytest.raises(AlreadyVisible):
        log.forget_after(0)


def test_versions_that_do_not_exist_are_refused(log):
    fill(log, 1)
    for call in (log.publish, log.forget_after):
        with pytest.raises(NoSuchVersion) as caught:
            call(2)
        assert (caught.value.version, caught.value.newest) == (2, 1)
        for wrong in (-1, True, "1", 1.0, None):
            with pytest.raises(InvalidOption):
                call(wrong)
    log.publish(1)
    log.publish(0)
    fill(log, 1)  # a refusal fails nothing


def test_a_closed_or_read_only_log_publishes_nothing(log):
    log.commit([order(1)], visible=False)
    with ChangeLog.open(log.path, read_only=True) as follower:
        assert follower.withheld is None
        assert (follower.visible, follower.durable) == (0, 0)
        for call in (follower.publish, follower.forget_after):
            with pytest.raises(LogReadOnly):
                call(1)
        log.publish(1)
        wait_until(lambda: follower.visible == 1)
        assert follower.durable == 1
    log.close()
    for call in (log.publish, log.forget_after):
        with pytest.raises(LogClosed):
            call(1)


@pytest.mark.parametrize("ends", ["published", "forgotten", "in part"])
def test_what_is_withheld_stays_withheld_over_an_opening(tmp_path, ends):
    """F28: the owner publishes or forgets the rest."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        fill(log, 2)
        log.commit([order("hidden")], visible=False)
        fill(log, 2)
    with (
        ChangeLog.open(tmp_path / "log", **QUICK) as log,
        ChangeLog.open(tmp_path / "log", read_only=True) as follower,
    ):
        probe, remote = watching(log, since=Position(1)), watching(follower, since=Position(1))
        fill(log, 1)
        assert log.withheld == range(3, 7)
        assert (log.visible, follower.visible, log.durable) == (2, 2, 6)
        probe.wait_for(4)
        if ends == "published":
            log.publish(5)
        elif ends == "forgotten":
            log.forget_after(2)
            fill(log, 4)
        else:
            log.publish(3)
            assert log.withheld == range(4, 7)
            log.forget_after(4)
            fill(log, 2)
            log.publish(4)
        assert log.withheld is None
        probe.wait_for(12)
        assert probe.positions == everything(log)
        remote.wait_for(12)
        assert remote.positions == probe.positions
        assert [change.key for change in remote.changes] == [change.key for change in probe.changes]


def test_what_is_withheld_evicts_nothing_that_a_live_cursor_has_not_read():
    """F28, E23. Avoidable work, row 8: a withheld batch larger than any ring leaves slow subscribers LIVE."""
    with opened(ring_events=8) as log:
        slow, waiting = watching(log, first=0), watching(log, first=0)
        fill(log, 3)
        for _ in range(300):
            log.commit([order(1), order(2)], visible=False)
        assert slow.subscription.state.value == waiting.subscription.state.value == "LIVE"
        reads = log.statistics().frames_read
        slow.request(6)
        assert versions(slow) == [1, 2, 3]
        assert log.statistics().frames_read == reads
        log.publish(303)
        assert waiting.subscription.state.value == "RESYNC"
        for probe in (slow, waiting):
            probe.request(10**6)
            probe.wait_for(906)
            assert probe.positions == everything(log)


@pytest.mark.parametrize("withheld_bytes", [0, 2000, 10**7])
def test_beyond_the_bound_subscribers_read_from_the_log(withheld_bytes):
    """F28, invariants 2 and 12: what is kept of withheld transactions is bounded, and told."""
    with opened(withheld_bytes=withheld_bytes) as log:
        probe = watching(log)
        fill(log, 1)
        for number in range(40):
            log.commit([order(number)], visible=False)
            assert log.statistics().withheld_bytes <= withheld_bytes
        kept = log.statistics()
        assert (kept.withheld, kept.visible, kept.durable, kept.appended) == (40, 1, 41, 41)
        log.publish(41)
        probe.wait_for(82)
        assert probe.positions == everything(log)
        assert log.statistics().withheld_bytes == log.statistics().withheld == 0
        assert ("RESYNC" in probe.states) == (withheld_bytes < 10**6)


def test_a_spooled_transaction_can_be_withheld():
    """F28."""
    with opened(spool_bytes=2000, frame_bytes=1024) as log:
        probe = watching(log)
        log.commit([order(number) for number in range(200)], visible=False)
        fill(log, 1)
        assert probe.positions == []
        log.publish(1)
        probe.wait_for(203)
        assert probe.positions == everything(log)


def test_a_subscriber_of_what_is_withheld_begins_behind_what_is_visible(log):
    """E9, F28: the next version at subscribe time is the first that is withheld."""
    fill(log, 1)
    log.commit([order(2)], visible=False)
    probe = watching(log)
    log.publish(2)
    assert versions(probe) == [2]


def test_a_retry_of_a_withheld_commit_is_a_duplicate(log):
    log.commit([order(1)], producer=("p", 1), visible=False)
    done = log.commit([order(1)], producer=("p", 1), visible=False)
    assert (done.version, done.duplicate) == (1, True)
    log.publish(1)
    assert log.withheld is None


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_visible_is_never_above_durable_nor_durable_above_appended(sync):
    """F29, invariant 2: under every policy, while threads commit, withhold, publish and forget."""
    wrong = []
    stop = threading.Event()

    def look(log):
        while not stop.is_set():
            visible = log.visible
            durable = log.durable
            told = log.statistics()
            if visible > durable or not told.visible <= told.durable <= told.appended:
                wrong.append((visible, durable, told))

    def write(log):
        try:
            for number in range(60):
                done = log.commit([order(number)], visible=number % 3 != 0)
                if number % 6 == 0:
                    log.publish(done.version)
                elif number % 6 == 3:
                    log.forget_after(done.version - 1)
        finally:
            stop.set()

    with opened(sync=sync) as log:
        probe = watching(log)
        in_threads(lambda: write(log), lambda: look(log))
        assert not wrong
        rest = log.withheld
        if rest:
            log.publish(rest[-1])
        wait_until(lambda: log.visible == log.statistics().appended)
        wait_until(lambda: probe.positions == everything(log))
        assert all(one < other for one, other in pairwise(probe.positions))


def test_threads_that_publish_and_forget_at_once_agree():
    """E20, invariant 1: versions rise by one, whoever commits, publishes or forgets in between."""
    with opened() as log:
        probe = watching(log)
        kept = []

        def commit(number):
            for turn in range(25):
                done = log.commit([order(f"{number} {turn}")], visible=turn % 2 == 0)
                kept.append(done.version)
                try:
                    if turn % 4 == 0:
                        log.publish(done.version)
                    elif turn % 4 == 2:
                        log.forget_after(max(log.visible, done.version - 1))
                except (NoSuchVersion, AlreadyVisible):
                    continue

        in_threads(*[lambda number=number: commit(number) for number in range(4)])
        if log.withheld:
            log.publish(log.withheld[-1])
        truth = everything(log)
        assert probe.positions == truth
        assert [one.version for one in truth if not one.index] == list(range(1, log.head.version))
        assert probe.clean


def test_the_program_in_the_documentation_prints_what_it_shows(tmp_path, monkeypatch):
    """F28, E20."""
    text = (Path(__file__).parents[3] / "docs" / "visibility.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (program,) = [block for language, block in blocks if language == "python"]
    (shown,) = [block for language, block in blocks if not language]
    printed = io.StringIO()
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "visibility.md", "exec"), {})
    assert printed.getvalue() == shown


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, LogFull), (errno.EIO, LogFailed)])
def test_a_disk_that_cannot_forget_a_schema_forgets_nothing(monkeypatch, number, error):
    """E20, F43: schemas told by what is to be forgotten are marked first; where that fails, nothing has changed."""
    with opened() as log:
        fill(log, 1)
        log.commit([schema("order", {"type": "struct", "fields": []})], visible=False)

        def refuse(_pending):
            raise OSError(number, "no")

        with monkeypatch.context() as patched:
            patched.setattr(schemas_of(log), "write", refuse)
            with pytest.raises(error):
                log.forget_after(1)
        assert log.withheld == range(2, 3)
        log.forget_after(1)
        assert log.withheld is None
        assert log.schemas() == {}


def test_a_log_that_a_child_has_inherited_counts_as_failed(log, monkeypatch):
    """F143: so that nothing is written beside it either."""
    assert not log._failed
    with monkeypatch.context() as child:
        child.setattr(service_of(log), "inherited", LogForked(log.path, 7))
        assert log._failed
