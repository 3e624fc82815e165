"""Frames whose damage no crash explains: the log does not open."""

import pytest

from publishers.errors import WalCorrupted
from publishers.wal import Epoch
from publishers.wal.append.active_segment import control_frame
from publishers.wal.checks import Verdict, verify
from publishers.wal.files.segment import index_name
from publishers.wal.format.control import ControlTables, encode_epoch
from publishers.wal.format.frame import CONTROL, Chain
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import contents, fill_segments, opened
from tests.publishers.wal.recover.test_recovery import FIRST, frames, head_of, log_of, place_of
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG


def test_a_damaged_frame_before_one_that_was_written_when_it_was_durable_is_corrupt():
    """F38."""
    system = log_of(b"one", b"two", b"three")
    start, _ = place_of(system, 2)
    for at in (start, start + 4, start + 20, start + 85):
        system.content(LOG / FIRST)[at] ^= 1
        with pytest.raises(WalCorrupted) as caught:
            opened(system)
        assert (caught.value.segment, caught.value.offset) == (1, start)
        assert "proves that these data were durable" in str(caught.value)
        system.content(LOG / FIRST)[at] ^= 1
    assert len(contents(opened(system))) == 3


def test_a_last_frame_that_ends_in_zeros_tells_what_was_durable_too():
    """Opening and verify look for it in the same way."""
    system = log_of(b"one", b"two", b"three\0\0")
    start, _ = place_of(system, 2)
    system.content(LOG / FIRST)[start + 85] ^= 1
    assert verify(LOG, filesystem=system).verdict is Verdict.CORRUPT
    with pytest.raises(WalCorrupted, match="proves that these data were durable"):
        opened(system)


def test_a_length_set_to_zero_before_durable_frames_is_corrupt():
    system = log_of(b"one", b"two", b"three")
    start, _ = place_of(system, 1)
    system.content(LOG / FIRST)[start : start + 80] = bytes(80)
    with pytest.raises(WalCorrupted, match="zeros, but a frame at"):
        opened(system)


def test_a_log_that_ends_before_what_head_vouches_for_is_corrupt():
    system = log_of(b"one", b"two")
    log = opened(system)
    log.close()
    assert head_of(system).durable == 2
    start, _ = place_of(system, 2)
    data = bytes(system.content(LOG / FIRST))
    for damaged in (data[:start], data[:start] + bytes(len(data) - start)):
        system.replace(LOG / FIRST, damaged)
        with pytest.raises(WalCorrupted, match="HEAD records version 2 as durable"):
            opened(system)


def test_a_lost_control_frame_that_head_covers_is_corrupt():
    system = log_of()
    log = opened(system)
    log.close()
    offset, header = frames(system)[-1]
    assert header.flags == CONTROL
    system.replace(LOG / FIRST, bytes(system.content(LOG / FIRST)[:offset]))
    with pytest.raises(WalCorrupted, match="HEAD records version"):
        opened(system)


def test_a_bad_frame_in_a_closed_segment_is_corrupt():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    log.abandon()
    assert index_name(1) not in system.listing(LOG)
    system.content(LOG / FIRST)[5000] ^= 1
    with pytest.raises(WalCorrupted) as caught:
        opened(system)
    assert caught.value.segment == 1


def test_a_bad_frame_behind_a_good_index_is_reported_by_the_reader():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    while log.maintain():
        pass
    log.close()
    system.content(LOG / FIRST)[5000] ^= 1
    log = opened(system)
    with pytest.raises(WalCorrupted) as caught:
        contents(log)
    assert caught.value.segment == 1
    assert contents(log, catalog_of(log).entries[1].first_version)


def rewritten(system: SimulatedFileSystem, place: int, payload: bytes) -> None:
    """Puts a well-formed frame of other content in the place of a control frame."""
    found = frames(system)
    offset, header = found[place]
    chain = Chain(header.previous, header.version, header.committed_at)
    data = control_frame(payload, chain, header.committed_at, 0)
    content = system.content(LOG / FIRST)
    content[offset:] = data + bytes(200)


def test_control_frames_that_make_no_sense_are_corrupt():
    for place, payload, why in (
        (0, b"short", "a control frame of 5 bytes"),
        (0, bytes(8), "a control frame of kind 0 and format 0"),
        (0, b"\1\0\0\0\1\0\0\0", "a control frame of kind 1 and format 1"),
        (0, b"\1\0\0\0\2\0\0\0", "a checkpoint of 8 bytes"),
        (1, b"\2\0\0\0\2\0\0\0", "an epoch of 8 bytes"),
        (0, encode_epoch(Epoch(1, 1)), "a checkpoint in the wrong place"),
        (1, ControlTables().encode(), "a checkpoint in the wrong place"),
    ):
        system = log_of()
        rewritten(system, place, payload)
        with pytest.raises(WalCorrupted, match=why):
            opened(system)
