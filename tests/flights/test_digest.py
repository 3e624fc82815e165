from hypothesis import given
from hypothesis import strategies as st

from penstock_flights.digest import StreamDigest

CHANGES = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=20)


@given(changes=CHANGES, cut=st.integers(0, 20))
def test_a_digest_goes_on_where_another_stopped(changes, cut):
    whole = StreamDigest()
    whole.add_many(changes)
    first = StreamDigest()
    first.add_many(changes[:cut])
    second = StreamDigest(first.count, first.ordered, first.content)
    second.add_many(changes[cut:])
    assert second == whole
    assert str(second) == str(whole)


def test_only_the_ordered_sum_tells_that_two_changes_were_swapped():
    right, swapped = StreamDigest(), StreamDigest()
    right.add_many([(b"a", b"1"), (b"b", b"2")])
    swapped.add_many([(b"b", b"2"), (b"a", b"1")])
    assert right.content == swapped.content
    assert right.ordered != swapped.ordered
    assert right != swapped


def test_a_change_that_comes_twice_or_not_at_all_shows():
    digests = []
    for changes in ([(b"a", b"1")], [(b"a", b"1")] * 2, []):
        digest = StreamDigest()
        digest.add_many(changes)
        digests.append((digest.count, digest.content, digest.ordered))
    assert len(set(digests)) == 3
    assert StreamDigest() != "a text"
