"""Gaps, and starts inside a transaction, over our protocol."""

from itertools import pairwise

import pytest

import flow
from publishers.fanout.gap import Gap
from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.mutations.mutation import upsert
from tests.harness.inside import housekeeping_of
from transports import RemoteError, connect, serve
from transports.codec.replies import Missing
from transports.errors import Violation

RETAIN = {
    "sync": "os",
    "fill_step": 65_536,
    "segment_bytes": 65_536,
    "retain_bytes": 65_536,
    "retain_age": None,
    "ring_events": 10,
}


class Probe:
    """Notes what comes, in order."""

    def __init__(self, demand=0):
        self.first, self.seen, self.errors = demand, [], []

    def on_subscribe(self, subscription):
        self.subscription = subscription
        if self.first:
            subscription.request(self.first)

    def on_next(self, change):
        self.seen.append((change.version, change.index))

    def on_gap(self, gap):
        assert (tuple(gap.begin), tuple(gap.end)) == (place(gap.begin_cursor), place(gap.end_cursor))
        self.seen.append((gap.begin_cursor, gap.end_cursor))

    def on_error(self, error):
        self.errors.append(error)

    def on_complete(self): ...

    @property
    def changes(self):
        return [place for place in self.seen if isinstance(place[0], int)]


class Deaf(Probe):
    """One who cannot be told of gaps."""

    on_gap = None


@pytest.fixture
def served(tmp_path):
    with ChangeLog.open(tmp_path / "shop", **RETAIN) as log:
        log.commit([upsert("order", str(number), {"n": number}) for number in range(5)])
        server = serve(log, port=0)
        yield log, server.url
        server.stop()


async def prune(log, until):
    """Commits until retention has taken the beginning."""
    begin = log.oldest
    for _ in range(400):
        log.commit([upsert("order", str(number), {"n": number}) for number in range(60)])
    housekeeping_of(log).poke()
    await until(lambda: log.oldest > begin)
    housekeeping_of(log).close()


def place(cursor):
    """Version and index of a cursor, which only a test may look into."""
    return tuple(map(int, cursor.split(":")[2:]))


def following(change):
    """The change behind one, in a log whose first transaction has 5 changes and all others 60."""
    version, index = change
    return (version, index + 1) if index < (5 if version == 1 else 60) else (version + 1, 0)


@pytest.mark.parametrize("late", [True, False])
async def test_a_remote_subscriber_jumps_over_what_is_missing_and_is_told(served, until, late):
    """E37, D5: a late start, and one that retention overtakes in mid-stream; the gap comes before what follows it."""
    log, url = served
    cursor = str(log.token(Position(1, 2)))
    probe = Probe(demand=0 if late else 2)
    async with connect(url) as remote:
        feed = remote.changes(since=cursor, on_gap="jump", window=2)
        if not late:
            feed.subscribe(probe, executor=flow.INLINE)
            await until(lambda: len(probe.changes) == 2)
        await prune(log, until)
        if late:
            feed.subscribe(probe, executor=flow.INLINE)
        probe.subscription.request(10)
        count = 10 if late else 12
        await until(lambda: len(probe.changes) == count or probe.errors)
        gaps = [one for one in probe.seen if isinstance(one[0], str)]
        assert gaps
        if late:
            assert gaps == [probe.seen[0]] == [(cursor, str(log.token(log.oldest)))]
        for before, after in pairwise(probe.seen):
            if isinstance(before[0], str):  # behind a gap comes the oldest change that was kept then
                assert place(before[1]) == (place(after[0]) if isinstance(after[0], str) else after)
            elif isinstance(after[0], str):  # and before it all that came until then
                assert place(after[0]) == following(before)
            else:
                assert after == following(before)
        assert not probe.errors


async def test_a_callable_is_told_of_a_gap_and_nobody_jumps_in_silence(served, until):
    """E37: as in process: an iterator cannot be told, so the program that has one is."""
    log, url = served
    cursor = str(log.token(Position(1, 2)))
    await prune(log, until)
    async with connect(url) as remote:
        with pytest.raises(TypeError, match="never left out in silence"):
            remote.changes(since=cursor, on_gap="jump").subscribe(Deaf())
        gaps = []
        async with flow.aiter(remote.changes(since=cursor, on_gap=gaps.append), prefetch=4) as changes:
            first = await anext(changes)
    (gap,) = gaps
    assert isinstance(gap, Gap)
    assert (gap.begin, gap.end) == (Position(1, 2), log.oldest)
    assert first.position == gap.end
    assert (gap.begin_cursor, gap.end_cursor) == (cursor, str(log.token(log.oldest)))


@pytest.mark.parametrize("end", ["", "nonsense", "0" * 32 + ":1:x:0"])
def test_a_gap_whose_ends_are_no_places_breaks_the_protocol(end):
    with pytest.raises(Violation, match="a gap that is none"):
        Missing("a", "0" * 32 + ":1:1:0", end).gap()


async def test_a_remote_subscriber_that_did_not_ask_to_jump_ends(served, until):
    """E37, D5."""
    log, url = served
    cursor = str(log.token(Position(1, 2)))
    await prune(log, until)
    probe = Probe(demand=5)
    async with connect(url) as remote:
        remote.changes(since=cursor).subscribe(probe, executor=flow.INLINE)
        await until(lambda: probe.errors)
    (error,) = probe.errors
    assert isinstance(error, RemoteError)
    assert (error.code, error.data["oldest"]) == ("HISTORY_PRUNED", str(log.token(log.oldest)))


async def test_a_start_inside_a_transaction_may_send_it_as_a_whole(served, until):
    """F31."""
    log, url = served
    async with connect(url) as remote:
        for whole, first in ((True, 0), (False, 3)):
            probe = Probe(demand=100)
            feed = remote.changes(since=log.token(Position(1, 3)), whole=whole)
            feed.subscribe(probe, executor=flow.INLINE)
            await until(lambda probe=probe, first=first: len(probe.changes) == 6 - first)
            assert probe.changes == [(1, index) for index in range(first, 6)]


@pytest.mark.parametrize(("name", "value"), [("onGap", "skip"), ("onGap", 1), ("whole", "yes"), ("whole", 1)])
def test_values_that_nobody_knows_are_refused(name, value):
    """E37, F31."""
    from transports import Limits
    from transports.codec.messages import SubscribeRequest
    from transports.errors import InvalidRequest

    with pytest.raises(InvalidRequest, match=name):
        SubscribeRequest.of({"criteria": [], "credits": 1, name: value}, Limits())
