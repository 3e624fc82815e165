from hypothesis import given
from hypothesis import strategies as st

from publishers.wal.keep.retention import oldest_to_keep
from publishers.wal.read.catalog import SegmentEntry
from tests.publishers.wal.logs import options

SECOND = 1_000_000
ENTRIES = [SegmentEntry(number, number * 10, number * 100 * SECOND) for number in range(1, 6)]


def elapsed(entries, now):
    """Seconds since each segment but the last was closed."""
    return [(now - following.created_at) / SECOND for following in entries[1:]]


def oldest(floor=None, now=600 * SECOND, size=lambda number: 100, **overrides):
    settings = options(**{"retain_bytes": None, "retain_age": None, **overrides})
    return oldest_to_keep(ENTRIES, size, settings, floor, elapsed(ENTRIES, now))


def test_without_bounds_everything_stays():
    assert oldest() == 1


def test_segments_above_the_size_go_from_the_oldest_on():
    assert oldest(retain_bytes=500) == 1
    assert oldest(retain_bytes=499) == 2
    assert oldest(retain_bytes=300) == 3
    assert oldest(retain_bytes=0) == 5


def test_a_segment_is_as_old_as_its_end():
    assert oldest(retain_age=401.0) == 1
    assert oldest(retain_age=399.0) == 2
    assert oldest(retain_age=0.0) == 5


def test_either_bound_is_enough():
    """F45."""
    assert oldest(retain_bytes=400, retain_age=299.0) == 3
    assert oldest(retain_bytes=200, retain_age=1000.0) == 4


def test_the_floor_is_kept_whatever_the_bounds():
    """F45."""
    assert oldest(floor=30, retain_bytes=0) == 3
    assert oldest(floor=29, retain_bytes=0) == 2
    assert oldest(floor=1, retain_bytes=0) == 1
    assert oldest(floor=1000, retain_bytes=0) == 5


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(0, 500)),
    st.one_of(st.none(), st.floats(0, 10)),
    st.one_of(st.none(), st.integers(0, 100)),
)
def test_nothing_goes_that_must_stay_and_nothing_stays_that_must_go(sizes, most, age, floor):
    entries = [SegmentEntry(number, number * 10, number * SECOND) for number in range(1, len(sizes) + 1)]
    now = 9 * SECOND
    settings = options(retain_bytes=most, retain_age=age)
    number = oldest_to_keep(entries, lambda one: sizes[one - 1], settings, floor, elapsed(entries, now))
    assert 1 <= number <= len(sizes)
    kept = sum(sizes[number - 1 :])
    for gone in range(1, number):
        following = entries[gone]
        assert floor is None or following.first_version <= floor
        assert (most is not None and sum(sizes[gone - 1 :]) > most) or (
            age is not None and now - following.created_at > age * SECOND
        )
    if number < len(sizes) and (floor is None or entries[number].first_version <= floor):
        assert most is None or kept <= most
        assert age is None or now - entries[number].created_at <= age * SECOND
