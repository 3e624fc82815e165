"""Where to begin: names, versions, transactions and times."""

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned, InvalidOption, PositionAhead
from penstock_cdc.types import Start
from publishers import ChangeLog, Content, Position
from publishers.errors import SnapshotGone
from publishers.snapshots.cursor import SnapshotCursor
from tests.harness.inside import catalog_of, files_of, places_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, Probe, chance, everything, fill, opened, order, wait_until

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Wandering:
    """A clock that a test moves, sometimes backwards."""

    def __init__(self):
        self.now = 10**15

    def monotonic(self):
        return self.now / 1e6

    def now_us(self):
        return self.now


def after(microseconds):
    return EPOCH + timedelta(microseconds=microseconds)


def first_at(times, moment):
    """The answer of a full scan."""
    return next((version for version, at in times if at >= moment), times[-1][0] + 1 if times else 1)


def times_of(log):
    return [
        (change.version, change.timestamp)
        for change in log.history(limit=1_000_000).changes
        if change.index == 0
    ]


@given(
    st.lists(st.tuples(st.integers(-(10**6), 10**6), st.sampled_from([0, 1, 40, 400])), max_size=25),
    st.booleans(),
    st.data(),
)
@settings(max_examples=scaled(40))
def test_look_ups_by_time_agree_with_a_full_scan(steps, reopen, data):
    """F52: the clock jumps back and forth, a log of several segments, also after reopening and for a follower."""
    clock = Wandering()
    with (
        opened(clock=clock, segment_bytes=65_536, frame_bytes=1024) as log,
        contextlib.ExitStack() as last,
    ):
        for jump, size in steps:
            clock.now += jump
            log.commit([order("x" * 60 + str(n)) for n in range(size)])
        times = times_of(log)
        assert all(one[1] < other[1] for one, other in itertools.pairwise(times))
        openings = [log]
        if reopen:
            log.close()
            openings.clear()
        # Whatever ends an example, such as a draw too many, ends the opening too.
        openings.append(last.enter_context(ChangeLog.open(log.path, read_only=not reopen, **QUICK)))
        around = [at for _, at in times] or [after(clock.now)]
        for _ in range(12):
            base = data.draw(st.sampled_from(around))
            moment = base + timedelta(microseconds=data.draw(st.sampled_from([-1, 0, 1, -(10**7), 10**7])))
            for one in openings:
                assert one.position_at(moment) == Position(first_at(times, moment))
        for version, at in times:
            for one in openings:
                assert one.time_of(version) == one.time_of(Position(version, 3)) == at


def test_a_time_is_found_without_reading_the_log():
    """F52: counted reads; one frame for each of a few segments, and what lies between two entries of an index."""
    with opened(segment_bytes=65_536 * 4, retain_bytes=None, retain_age=None) as log:
        for _ in range(60):
            log.commit([order("x" * 400 + str(n)) for n in range(50)])
            fill(log, 30)
        segments = len(catalog_of(files_of(log).reader).entries)
        assert segments > 4
        times = times_of(log)
        draw = chance(1)
        for _ in range(50):
            version, at = draw.choice(times)
            before = files_of(log).reader.statistics.frames
            assert log.position_at(at) == Position(version)
            assert files_of(log).reader.statistics.frames - before < 65_536 // 100
        assert files_of(log).reader.statistics.frames < 50 * len(times)


def test_times_outside_the_log(log):
    """F52."""
    assert log.position_at(EPOCH) == log.head == Position(1)
    fill(log, 2)
    assert log.position_at(EPOCH) == log.oldest
    assert log.position_at(datetime.now(UTC) + timedelta(days=400)) == log.head
    with pytest.raises(PositionAhead):
        log.time_of(3)
    with pytest.raises(HistoryPruned):
        log.time_of(0)
    for naive in (datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=None)):  # noqa: DTZ001 - that is the point
        with pytest.raises(InvalidOption, match="time zone"):
            log.position_at(naive)


def test_what_is_not_visible_has_no_time_yet():
    """F52: neither is found above the watermark."""
    with opened(sync="interval", sync_interval=60.0) as log:
        log.commit([order(1)], durable=True)
        log.commit([order(2)])
        files_of(log).sync()  # durable, not yet published
        assert log.position_at(log.time_of(1) + timedelta(microseconds=1)) == Position(2)
        assert log.position_at(datetime.now(UTC) + timedelta(days=1)) == Position(2)
        with pytest.raises(PositionAhead):
            log.time_of(2)


def recorded(log, since, **options):
    """What a fresh subscriber gets."""
    probe = Probe(first=10**6)
    log.changes(since=since, **options).subscribe(probe, executor=flow.INLINE)
    wait_until(lambda: probe.terminals or probe.subscription.position == log.head, probe.state)
    probe.subscription.cancel()
    return probe.positions


def test_every_kind_of_start_against_a_recorded_stream():
    """F61: latest, earliest, version, position, transaction, timestamp."""
    with opened(ring_events=4) as log:
        commits = [log.commit([order(n) for n in range(size)]) for size in (1, 3, 0, 2, 5, 1)]
        stream = everything(log)
        ids = {
            change.version: UUID(change.body["id"])
            for change in log.history(limit=1000, content=Content.BODY).changes
            if change.index == 0
        }
        for start in (None, "latest", Start.LATEST):
            assert recorded(log, start) == []
        for start in ("earliest", Start.EARLIEST, 1, log.oldest, EPOCH):
            assert recorded(log, start) == stream
        for place, position in enumerate(stream):
            assert recorded(log, position) == stream[place:]
            assert recorded(log, log.token(position)) == stream[place:]
            assert recorded(log, str(log.token(position))) == stream[place:]
        for commit in commits:
            rest = [position for position in stream if position.version >= commit.version]
            starts = [commit, commit.version, ids[commit.version], log.time_of(commit.version)]
            for start in starts:
                assert recorded(log, start) == rest
                assert [change.position for change in log.history(None, start).changes] == rest


@pytest.mark.parametrize("since", [True, -1, 1.5, b"1", uuid4(), object()])
def test_what_is_no_place_is_refused(log, since):
    """F61."""
    fill(log, 3)
    with pytest.raises(InvalidOption, match="since"):
        log.changes(since=since)
    with pytest.raises(InvalidOption, match="since"):
        log.history(since=since)


@pytest.mark.parametrize("wrong", [None, "noon", 1.5, object()])
def test_what_is_no_time_and_no_version_is_refused_by_name(log, wrong):
    """F52."""
    fill(log, 1)
    with pytest.raises(InvalidOption, match="moment"):
        log.position_at(wrong)
    with pytest.raises(InvalidOption, match="place"):
        log.time_of(wrong)


def test_names_are_resolved_when_somebody_subscribes(log):
    """E9, F61: a feed is cold, and may be made long before."""
    latest, earliest = log.changes(), log.changes(since="earliest")
    fill(log, 3)
    for feed, start in ((latest, Position(4)), (earliest, Position(1))):
        probe = Probe(first=1)
        feed.subscribe(probe, executor=flow.INLINE)
        fill(log, 1)
        probe.wait_for(1)
        assert probe.positions == [start]
        probe.subscription.cancel()


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (Position(2, 0), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]),  # version, and index 0
        (Position(2, 1), [(2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]),  # both, inclusive
        (
            2,
            [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)],
        ),  # version alone: index 0, the TRANSACTION event too
        (None, [(3, 0), (3, 1), (3, 2)]),  # neither: the next version at subscribe time
    ],
)
def test_since_is_inclusive_and_defaults_to_the_next_version(log, since, expected):
    """E9: the four combinations, with a commit between making the publisher and subscribing."""
    fill(log, 1, 2)
    feed = log.changes(since=since)
    fill(log, 1, 2)  # in between
    probe = Probe(first=100)
    feed.subscribe(probe, executor=flow.INLINE)
    fill(log, 1, 2)
    wait_until(lambda: len(probe.positions) >= len(expected), probe.state)
    assert probe.positions == expected


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.data())
def test_a_restart_inside_a_transaction_sends_it_again_as_a_whole(sizes, data):
    """F31: the first change after the restart has index 0."""
    with opened(ring_events=data.draw(st.sampled_from([1, 3, 1000])), frame_bytes=1024) as log:
        for size in sizes:
            log.commit([order("y" * 300 + str(n)) for n in range(size)])
        stream = everything(log)
        place = data.draw(st.sampled_from(stream))
        since = data.draw(st.sampled_from([place, str(log.token(place))]))
        found = recorded(log, since, whole=True)
        assert found[0] == Position(place.version, 0)
        assert found == [position for position in stream if position.version >= place.version]
        assert recorded(log, None, whole=True) == []


def test_a_search_for_a_transaction_ends_when_whoever_asked_has_gone(log):
    """F147: it may read the whole log."""
    fill(log, 9)
    looked = []

    def check():
        looked.append(1)
        if len(looked) == 4:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        log.history(since=uuid4(), check=check)
    assert len(looked) == 4


def test_a_transaction_that_only_mentions_another_one_is_not_taken_for_it(log):
    """F52: the id stands in its annotations, and is not its own."""
    wanted = log.commit([order(1)]).version
    event = next(iter(log.history(since=Position(wanted), content=Content.BODY).changes))
    log.commit([order(2)], meta={"repairs": event.body["id"]})
    assert places_of(log).transaction(UUID(event.body["id"])) == Position(wanted)
    with pytest.raises(InvalidOption):
        places_of(log).transaction(uuid4())


def test_the_place_in_the_cursor_of_a_snapshot_is_judged_as_any_other(monkeypatch):
    """F89, F92: where its history is gone the snapshot is, and that names where history begins."""
    with opened() as log:
        fill(log, 3)
        cursor = SnapshotCursor("0" * 16, None, log.token(Position(2)))
        assert places_of(log).in_snapshot(cursor) == Position(2)

        def judge(*_, **__):
            raise HistoryPruned(Position(3))

        monkeypatch.setattr(places_of(log).lineage, "judge", judge)
        with pytest.raises(SnapshotGone) as raised:
            places_of(log).in_snapshot(cursor)
        assert raised.value.oldest == Position(3)
