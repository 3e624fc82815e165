import struct
from uuid import UUID
from zlib import crc32

import pytest

from publishers.errors import FormatTooNew
from publishers.wal.disk.filesystem import SyncError, means_full
from publishers.wal.files.head import CLEAN, CUT, DEFERRED, HEAD_NAME, SLOT_BYTES, Head, HeadState, read_head
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

FIRST = HeadState(UUID(int=7), 1, 0, 0, 1, 0, 1)


@pytest.fixture
def system():
    made = SimulatedFileSystem()
    made.make_directory(LOG)
    return made


def read(system):
    return read_head(system.open(LOG / HEAD_NAME, "read"))


def test_a_slot_is_88_bytes_and_every_bit_of_it_counts():
    state = HeadState(UUID(int=7), 9, 2, 100, 3, 4096, 2, DEFERRED, 90)
    data = state.pack()
    assert len(data) == 88
    assert data[:8] == b"PENSHEAD"
    assert HeadState.unpack(data) == state
    for bit in range(88 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert HeadState.unpack(bytes(damaged)) is None
    assert HeadState.unpack(data[:87]) is None


def test_an_addition_follows_a_slot_of_a_later_format_and_every_bit_of_it_counts():
    """F144: the random bits of the epoch; what an older version reads of the slot stays as it was."""
    state = HeadState(UUID(int=7), 9, 2, 100, 3, 4096, 2, DEFERRED, 90, 2**64 - 2)
    data = state.pack()
    assert len(data) == SLOT_BYTES == 108
    assert HeadState.unpack(data) == HeadState.unpack(data + bytes(400)) == state
    for bit in range(108 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert HeadState.unpack(bytes(damaged)) is None
    for size in (88, 90, 107):
        assert HeadState.unpack(data[:size]) is None
    # An addition belongs to its slot.
    other = state._replace(counter=11).pack()
    assert HeadState.unpack(data[:88] + other[88:]) is None


@pytest.mark.parametrize(
    ("addition", "too_new"), [(b"", False), (bytes(8), False), (b"", True), (b"more" * 80, True)]
)
def test_an_addition_of_another_form_is_too_new_or_none(addition, too_new):
    """F144: later versions may add what they like, as long as it stays in the sector."""
    slot = HeadState(UUID(int=7), 9, 2, 100, 3, 4096, 2, random=5).pack()[:88]
    body = struct.pack("<HH", 2 + too_new, 8 + len(addition)) + addition
    data = slot + body + struct.pack("<I", crc32(body, crc32(slot[:84])))
    if too_new:
        with pytest.raises(FormatTooNew) as caught:
            HeadState.unpack(data)
        assert (caught.value.found, caught.value.known) == (3, 2)
    else:
        assert HeadState.unpack(data) is None


def test_the_random_bits_stay_until_an_epoch_begins(system):
    head = Head.create(system, LOG, FIRST)
    head.write(1, 0, 1, 100, random=5)
    head.write(1, 1, 1, 200)
    assert (head.state.random, read(system)) == (5, head.state)
    head.write(2, 1, 1, 200, random=6)
    assert (head.state.random, read(system)) == (6, head.state)


def test_writes_alternate_between_two_slots_a_sector_apart(system):
    head = Head.create(system, LOG, FIRST)
    for number in range(1, 6):
        head.write(1, number, 1, number * 100)
        content = system.content(LOG / HEAD_NAME)
        assert len(content) == 8192
        slots = [HeadState.unpack(bytes(content[at : at + 88])) for at in (0, 4096)]
        assert {slot.counter % 2 for slot in slots if slot} == {0, 1} or number == 1
        assert read(system) == head.state
        assert head.state.counter == number + 1
    assert slots[0].counter % 2 == 0


def test_counting_goes_on_after_a_reopening(system):
    head = Head.create(system, LOG, FIRST)
    head.write(1, 1, 1, 100)
    again = Head(system.open(LOG / HEAD_NAME, "write"), read(system))
    again.write(2, 2, 1, 200)
    assert again.state.counter == 3
    content = system.content(LOG / HEAD_NAME)
    assert HeadState.unpack(bytes(content[:88])).counter == 2


def test_a_torn_write_leaves_the_slot_before(system):
    head = Head.create(system, LOG, FIRST)
    head.write(1, 1, 1, 100)
    before = head.state
    content = system.content(LOG / HEAD_NAME)
    content[4096 + 40] ^= 1
    assert read(system) == before
    content[40] ^= 1
    assert read(system) is None


def test_head_never_moves_back_except_for_a_cut(system):
    head = Head.create(system, LOG, FIRST)
    head.write(1, 50, 3, 5000, oldest=2)
    head.write(1, 40, 3, 4000, oldest=1)
    assert head.state[3:7] == (50, 3, 5000, 2)
    head.write(1, 50, 3, 5000, flags=CUT)
    head.write(1, 30, 2, 100)
    assert head.state[3:6] == (30, 2, 100)
    assert head.state.flags == 0


def test_head_never_tells_of_less_at_the_same_place(system):
    """Whoever read the version before a roll, and the place behind it, does not take back what was acknowledged."""
    head = Head.create(system, LOG, FIRST)
    head.write(1, 20, 2, 64)
    head.write(1, 10, 2, 64)
    assert head.state[3:6] == read(system)[3:6] == (20, 2, 64)
    head.write(1, 21, 2, 64)
    assert head.state[3:6] == (21, 2, 64)


def test_deferred_visibility_stays_until_somebody_ends_it(system):
    """F28: a visible version may be named before it is durable; the lesser of the two counts."""
    head = Head.create(system, LOG, FIRST._replace(flags=DEFERRED | CLEAN, visible=4, durable=3))
    assert head.state.newest_visible == 3
    head.write(1, 9, 1, 100)
    assert (head.state.flags, head.state.visible, head.state.newest_visible) == (DEFERRED, 4, 4)
    head.write(1, 9, 1, 100, visible=6)
    assert (head.state.flags, head.state.newest_visible) == (DEFERRED, 6)
    head.write(1, 9, 1, 100, visible=None)
    assert (head.state.flags, head.state.newest_visible) == (0, 9)
    assert FIRST._replace(durable=8).newest_visible == 8


@pytest.mark.parametrize("failures", [1, 2])
def test_a_slot_for_which_there_is_no_room_never_counts(system, failures):
    """Whatever of it was written, also after a power cut; where that cannot be made sure, it is a failure."""
    head = Head.create(system, LOG, FIRST)
    head.write(1, 1, 1, 100)
    before = head.state
    for offset in range(20):
        for place in range(failures):
            system.faults[system.operations + 1 + place] = "ENOSPC"
        with pytest.raises(SyncError if failures == 2 else OSError) as caught:
            head.write(1, 2, 1, 200 + offset, flags=CUT)
        assert means_full(caught.value) == (failures == 1)
        assert head.state == before
        assert failures == 2 or read(system) == before
    head.write(1, 2, 1, 200)
    assert read(system) == head.state


def test_a_failed_sync_does_not_count_the_slot(system):
    head = Head.create(system, LOG, FIRST)
    before = head.state
    system.faults = {system.operations + 2: "EIO"}
    with pytest.raises(SyncError):
        head.write(1, 1, 1, 100)
    assert head.state == before
    head.write(1, 1, 1, 100)
    assert read(system) == head.state
    head.close()
