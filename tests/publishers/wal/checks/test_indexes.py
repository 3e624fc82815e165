"""F49: an index is derived, so what is wrong with it is told and mended, and is never held against its segment."""

from uuid import UUID

import pytest

from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.segment import SparseIndex, Trailer, index_name, segment_name
from tests.publishers.wal.checks.damage import Moody
from tests.publishers.wal.logs import fill_segments, opened
from tests.simulation.workload import LOG

FIRST = index_name(1)


@pytest.fixture
def system():
    system = Moody()
    wal = opened(system)
    fill_segments(wal, 3)
    while wal.maintain():
        pass
    wal.close()
    return system


def indexed(system):
    return SparseIndex.unpack(
        bytes(system.content(LOG / FIRST)), UUID(hex=verify(LOG, filesystem=system).log_id), 1
    )


@pytest.mark.parametrize("what", ["open", "pread"])
def test_an_index_that_may_not_be_read_makes_the_verdict_unreadable_and_repairs_nothing(system, what):
    """F49."""
    system.refused = {FIRST: what}
    report = verify(LOG, filesystem=system)
    assert [(one.kind, one.name, one.verdict) for one in report.findings] == [
        ("unreadable", FIRST, Verdict.UNREADABLE)
    ]
    assert report.frames > report.segments
    before = system.snapshot(LOG)
    refused = repair(LOG, write=True, filesystem=system)
    assert refused.refused == f"{FIRST}: it cannot be read (Permission denied)"
    assert (refused.done, refused.steps) == (False, [])
    assert system.snapshot(LOG) == before


def _other_end(index, trailer, log_id):
    return index.pack(log_id, 1, trailer._replace(end=trailer.end - 8))


def _no_frame(index, trailer, log_id):
    other = SparseIndex()
    for at, (version, first_index, committed_at) in index.entries().items():
        other.add(version + 1, first_index, committed_at, at)
    return other.pack(log_id, 1, trailer)


@pytest.mark.parametrize(("harm", "why"), [(_other_end, "trailer"), (_no_frame, "1 entries without a frame")])
def test_a_whole_index_that_tells_something_else_than_its_segment_is_built_anew(system, harm, why):
    """F49."""
    good = bytes(system.content(LOG / FIRST))
    index, trailer = indexed(system)
    assert isinstance(trailer, Trailer)
    log_id = UUID(hex=verify(LOG, filesystem=system).log_id)
    system.replace(LOG / FIRST, harm(index, trailer, log_id))
    (found,) = verify(LOG, filesystem=system).findings
    assert (found.kind, found.verdict, found.name) == ("index", Verdict.CORRUPT, FIRST)
    assert why in found.why
    done = repair(LOG, write=True, filesystem=system)
    assert [(step.action, step.segment) for step in done.steps] == [("index", 1)]
    assert bytes(system.content(LOG / FIRST)) == good
    assert segment_name(1) in system.listing(LOG)
