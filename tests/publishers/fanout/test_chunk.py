"""What lies in a ring."""

from hypothesis import given
from hypothesis import strategies as st

from publishers import Criteria
from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.chunk import Chunk, fitting
from tests.harness.inside import service_of
from tests.publishers.support import fill, opened


def slices_of(log, version):
    block, _ = service_of(log).frames.read(service_of(log).frames.locate(version, 0))
    return Slice(block, Predicate(Criteria.of()).select(block))


def test_a_chunk_knows_its_changes_and_bytes(log):
    """E29."""
    fill(log, 1, 3)
    part = slices_of(log, 1)
    chunk = Chunk(1, (part, part))
    assert (chunk.version, chunk.place, chunk.events, chunk.nbytes) == (1, 0, 8, 2 * part.nbytes)


def test_what_lies_since_an_index_leaves_out_what_is_before_it(log):
    """F14: an index counts inside its version."""
    fill(log, 1, 3)
    chunk = Chunk(1, (slices_of(log, 1),))
    assert [list(part.indices) for part in chunk.since(0)] == [[0, 1, 2, 3]]
    assert [list(part.indices) for part in chunk.since(2)] == [[2, 3]]
    assert chunk.since(4) == []


@given(st.integers(0, 12), st.integers(-5, 2000), st.integers(0, 1))
def test_what_fits_is_the_longest_beginning_within_both_bounds(max_events, max_bytes, least):
    """F67: never more than either bound, but for what it must take at least."""
    with opened() as log:
        fill(log, 1, 3)
        fill(log, 1, 2)
        parts = [slices_of(log, 1), slices_of(log, 2)]
        taken = fitting(parts, max_events, max_bytes, least=least)
        events = sum(map(len, taken))
        nbytes = sum(part.block.size(index) for part in taken for index in part.indices)
        assert events <= max(max_events, least)
        assert nbytes <= max_bytes or events <= least
        flat = [(part.block.version, index) for part in taken for index in part.indices]
        whole = [(part.block.version, index) for part in parts for index in part.indices]
        assert flat == whole[:events]
        assert all(len(part) for part in taken)
