"""Past changes as pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import HistoryPruned, InvalidOption, LogClosed, PositionAhead
from penstock_cdc.fields import set_field
from publishers import Content, Criterion, Position, upsert
from publishers.blocks.block import Block
from tests.harness.inside import catalog_of, files_of, housekeeping_of, service_of
from tests.publishers.support import everything, fill, opened, order


def filled(log):
    for version in range(1, 9):
        log.commit([order(n, "order" if n % 2 else "item") for n in range(version % 4)])


@given(st.lists(st.integers(1, 7), min_size=1), st.sampled_from([None, "order", "item", "nothing"]))
def test_pages_of_any_size_lose_and_repeat_nothing(limits, kind):
    """E52: paging by position."""
    wishes = None if kind is None else [Criterion(entity_types={kind})]
    with opened() as log:
        filled(log)
        truth = [change.position for change in log.history(wishes, limit=1000).changes]
        found, since, turn = [], None, 0
        while True:
            page = log.history(wishes, since, limits[turn % len(limits)])
            assert len(page.changes) <= limits[turn % len(limits)]
            assert page.since == (log.oldest if since is None else since)  # the resolved start is echoed
            found += [change.position for change in page.changes]
            since, turn = page.next, turn + 1
            if since == log.head:
                break
            assert page.changes, "a page before the end brings something"
        assert found == truth


def test_history_carries_bodies_only_if_asked(log):
    """F8."""
    log.commit([order(7)])
    assert log.history().changes[1].body is None
    assert log.history(content=Content.BODY).changes[1].body == {"n": "7"}


def test_history_ends_at_the_watermark():
    with opened(sync="interval", sync_interval=60.0) as log:
        fill(log, 2)
        files_of(log).sync()  # durable, not yet published
        assert log.history().changes == ()
        assert log.history().next == Position(1, 0)
        log.commit([order(1)], durable=True)
        assert len(log.history().changes) == 6


def test_a_page_at_the_end_is_empty(log):
    fill(log, 1)
    page = log.history(since=Position(2))
    assert (page.changes, page.since, page.next) == ((), Position(2), Position(2))


@pytest.mark.parametrize("since", [Position(2, 1), Position(9, 9), 9, 10**30])
def test_a_page_beyond_the_end_is_refused_as_going_on_there_would_lose_what_is_in_between(log, since):
    """F30, F61: as a subscription there is; backwards it begins with the newest."""
    fill(log, 1)
    with pytest.raises(PositionAhead) as caught:
        log.history(since=since)
    assert caught.value.head == Position(2)
    assert log.history(since=since, reverse=True).changes[0].version == 1


def test_pruned_history_is_told(log):
    """E37."""
    with pytest.raises(HistoryPruned) as caught:
        log.history(since=Position(0, 0))
    assert caught.value.oldest == log.oldest


@pytest.mark.parametrize("limit", [0, -1, True, 1_000_001, "1", 2.0])
def test_a_limit_out_of_its_range_is_refused(log, limit):
    with pytest.raises(InvalidOption, match="limit"):
        log.history(limit=limit)


def test_a_closed_log_has_no_history():
    with opened() as log:
        fill(log, 1)
    with pytest.raises(LogClosed):
        log.history()


def test_a_page_inside_a_transaction_of_many_frames_goes_on_exactly():
    """D2: a page smaller than a transaction."""
    with opened(frame_bytes=1024) as log:
        log.commit([order(n) for n in range(300)])
        found, since = [], Position(1, 0)
        while since < log.head:
            page = log.history(since=since, limit=7)
            found += [change.position for change in page.changes]
            since = page.next
        assert found == everything(log)
        assert len(found) == 301


# Reversed.


def backwards(positions):
    """E52: versions descending, the TRANSACTION event first in each, then from the last to the first."""
    return sorted(positions, key=lambda one: (-one.version, one.index != 0, -one.index))


def paged(log, wishes, limits, *, reverse, since=None):
    found, turn = [], 0
    while True:
        limit = limits[turn % len(limits)]
        page = log.history(wishes, since, limit, reverse=reverse)
        assert page.reverse is reverse
        assert len(page.changes) <= limit
        assert page.since == (since or Position(log.head.version - 1) if reverse else since or log.oldest)
        found += [change.position for change in page.changes]
        if not page.more:
            return found, page.next
        assert len(page.changes) == limit, "a page is full, if there is another one"
        since, turn = page.next, turn + 1


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=8),
    st.lists(st.integers(1, 7), min_size=1),
    st.sampled_from([None, "order", "item", "nothing", "boundaries"]),
    st.booleans(),
)
def test_both_directions_agree_in_pages_of_any_size(sizes, limits, kind, large):
    """E52: forward and reversed, with transactions of many frames; "has next" is looked up."""
    wishes = {
        None: None,
        "order": Criterion(entity_types={"order"}),
        "item": Criterion(entity_types={"item"}),
        "nothing": Criterion(entity_types={"nothing"}),
        "boundaries": Criterion(areas={"INFRASTRUCTURE"}),
    }[kind]
    with opened(frame_bytes=1024, segment_bytes=65_536, retain_bytes=None, retain_age=None) as log:
        for size in sizes:
            pad = "p" * (400 if large else 1)
            log.commit(
                [order(f"{pad}{n}", "order" if n % 2 else "item") for n in range(size * (20 if large else 1))]
            )
        forward = [change.position for change in log.history(wishes, limit=100_000).changes]
        assert paged(log, wishes, limits, reverse=False) == (forward, log.head)
        assert paged(log, wishes, limits, reverse=True) == (backwards(forward), Position(0))
        assert log.history(wishes, Position(0), reverse=True).changes == ()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.data())
def test_a_reversed_history_begins_anywhere(sizes, data):
    """E52: the start is inclusive, and echoed; beyond the end is the newest version."""
    with opened(frame_bytes=1024) as log:
        for size in sizes:
            log.commit([order("z" * 100 + str(n)) for n in range(size)])
        whole = backwards(everything(log))
        place = data.draw(st.integers(0, len(whole) - 1))
        page = log.history(None, whole[place], 10_000, reverse=True)
        assert page.since == whole[place]
        assert [change.position for change in page.changes] == whole[place:]
        for since in (None, "latest", log.head, Position(99, 7)):
            page = log.history(None, since, 10_000, reverse=True)
            assert page.since == Position(len(sizes))
            assert [change.position for change in page.changes] == whole
        assert [
            change.position for change in log.history(None, "earliest", reverse=True).changes
        ] == backwards([position for position in whole if position.version == 1])[:100]


def test_a_log_without_changes_has_no_history_in_either_direction(log):
    """E52."""
    for reverse in (False, True):
        page = log.history(reverse=reverse)
        assert (page.changes, page.more) == ((), False)


def test_bodies_come_in_either_direction(log):
    """E52, F8."""
    log.commit([order(7), order(8)])
    page = log.history(content=Content.BODY, reverse=True)
    assert [change.body for change in page.changes[1:]] == [{"n": "8"}, {"n": "7"}]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_costs_what_it_holds_and_not_the_log(reverse):
    """E52: counted reads, from the beginning, the middle and the end of a log of many segments."""
    with opened(segment_bytes=262_144, retain_bytes=None, retain_age=None) as log:
        for _ in range(4000):
            log.commit([order("c" * 300)])
        reader = files_of(log).reader
        assert len(catalog_of(reader).entries) > 4
        for version in (1, 17, 2000, 3999, 4000):
            before = reader.statistics.frames
            page = log.history(None, Position(version), 10, reverse=reverse)
            assert page.changes[0].position == Position(version)
            assert reader.statistics.frames - before < 2 * 65_536 // 400
        before = reader.statistics.frames
        since, count = None, 0
        while True:
            page = log.history(None, since, 1000, reverse=reverse)
            count += len(page.changes)
            if not page.more:
                break
            since = page.next
        assert count == 8000
        assert (
            reader.statistics.frames - before < 2 * 4000
        )  # every frame once, and what a page begins with twice


def test_a_page_of_large_changes_makes_few_beyond_its_bound(log, monkeypatch):
    """Changes are made in runs, and a run has fewer where they are large."""
    log.commit([upsert("order", str(number), {"text": "x" * 100_000}) for number in range(40)])
    made, changes = [], Block.changes

    def counted(block, indices, view):
        made.extend(indices)
        return changes(block, indices, view)

    monkeypatch.setattr(Block, "changes", counted)
    group = log.groups.create("stock", since="earliest", max_bytes=250_000)
    with group.join("one") as worker:
        assert len(worker.read(1, wait=0)) == 1
    assert 2 <= len(made) <= 6


def test_a_rare_match_is_looked_for_once():
    """E52: the look-ahead of a page is where the next one begins."""
    with opened(retain_bytes=None) as log:
        for number in range(600):
            log.commit([order("rare" if number % 200 == 100 else "common")])
        for reverse in (False, True):
            service_of(log).frames.clear()
            before = files_of(log).reader.statistics.frames
            wishes, since, found = Criterion(keys={"rare"}), None, []
            while True:
                page = log.history(wishes, since, 1, reverse=reverse)
                found += [change.version for change in page.changes]
                if not page.more:
                    break
                since = page.next
            assert found == sorted([101, 301, 501], reverse=reverse)
            assert files_of(log).reader.statistics.frames - before < 2 * 600


def test_a_reversed_history_ends_where_retention_has_been():
    """E37, E52: what is gone is not there; to ask for it is told."""
    with opened(segment_bytes=65_536, retain_bytes=65_536, retain_age=None) as log:
        while log.oldest == Position(1):
            fill(log, 20, 20)
            housekeeping_of(log).poke()
        housekeeping_of(log).close()
        found, end = paged(log, None, [500], reverse=True)
        assert found == backwards(everything(log))
        assert found[-1].version == log.oldest.version
        assert end == Position(log.oldest.version - 1)
        with pytest.raises(HistoryPruned):
            log.history(since=end, reverse=True)
        with pytest.raises(HistoryPruned):
            log.history(
                since=str(log.token(log.oldest)).replace(f":{log.oldest.version}:", ":1:"), reverse=True
            )


def records(changes):
    """Changes of an entity with the field-level changes that follow them."""
    found = []
    for change in changes:
        if change.field is None or not found:
            found.append([])
        found[-1].append(change.position)
    return found


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=5), st.integers(1, 7))
def test_a_page_never_splits_a_record(versions, limit):
    """E52, F33: a change of an entity stays with its field-level changes, in either direction."""
    with opened() as log:
        for sizes in versions:
            log.commit(
                [
                    upsert("order", str(key), {}, changes=[set_field(f"f{n}", n) for n in range(fields)])
                    for key, fields in enumerate(sizes)
                ]
            )
        whole = records(log.history(limit=10_000).changes)
        kept = {tuple(record) for record in whole}
        for reverse in (False, True):
            since, found = None, []
            while True:
                page = log.history(None, since, limit, reverse=reverse)
                positions = [change.position for change in page.changes]
                found += positions
                parts = kept & {tuple(record) for record in whole if set(record) & set(positions)}
                assert sum(map(len, parts)) == len(positions), "a record was split"
                assert len(positions) <= limit or len(parts) == 1
                if not page.more:
                    break
                since = page.next
            forward = [position for record in whole for position in record]
            assert found == (backwards(forward) if reverse else forward)
