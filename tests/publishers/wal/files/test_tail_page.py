import struct
import threading
from unittest import mock
from zlib import crc32

import pytest

from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.tail_page import _COUNTER, TAIL_NAME, Tail, TailLife, TailState
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG


@pytest.fixture(params=["real", "simulated"])
def place(request, tmp_path):
    if request.param == "real":
        return RealFileSystem(), tmp_path
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    return system, LOG


def test_what_is_written_is_read_through_another_opening(place):
    writer = Tail.create(*place)
    reader = Tail.open(*place)
    assert reader is not None
    assert reader.read() is None
    for number in range(3):
        writer.write(1, number, 2, 4096, number + 1)
        assert reader.read() == TailState(1, number, 2, 4096, number + 1)
    again = Tail.create(*place)
    assert again.read() == TailState(1, 2, 2, 4096, 3)
    again.write(2, 9, 3, 64, 9)
    assert reader.read() == TailState(2, 9, 3, 64, 9)
    for tail in (writer, reader, again):
        tail.close()


def test_the_random_bits_of_the_epoch_are_read_back_and_a_page_of_format_1_has_none(place):
    """F144."""
    writer, reader = Tail.create(*place), Tail.open(*place)
    writer.write(1, 2, 3, 4, 5, 2**64 - 1)
    assert reader.read() == TailState(1, 2, 3, 4, 5, 2**64 - 1)
    # As format 1 writes over it: 56 bytes and their crc, and what stood behind stays.
    body = struct.pack("<QQQQQ", 6, 7, 8, 9, 10) + place[0].boot_id()
    writer._page[8:68] = body + struct.pack("<I", crc32(body))
    assert reader.read() == TailState(6, 7, 8, 9, 10)
    for tail in (writer, reader):
        tail.close()


def test_a_page_of_another_boot_does_not_count(place):
    system, path = place
    Tail.create(system, path).write(1, 2, 3, 4, 5)
    file = system.open(path / TAIL_NAME, "read")
    page = file.map(4096)
    assert Tail(page, system.boot_id()).read() is not None
    assert Tail(page, b"y" * 16).read() is None
    page.release()
    file.close()


def test_what_a_writer_says_of_its_life_counts_for_its_own_opening_and_boot(place):
    system, path = place
    writer, reader = Tail.create(system, path), Tail.open(system, path)
    writer.claim()
    assert reader.life() is None, "it has said nothing yet"
    writer.live(5, 7)
    assert reader.life() == TailLife(5, 7)
    for boot, expected in ((b"y" * 16, TailLife(0, 7)), (bytes(16), None)):
        assert Tail(reader._page, boot).life() == expected, (
            "of another boot it is dead, of an unknown one nothing is known"
        )
    again = Tail.create(system, path)
    again.claim()
    writer.live(9, 7)
    assert reader.life() is None, "a later opening has said nothing, and an earlier one may not any more"
    for tail in (writer, reader, again):
        tail.close()


def test_a_page_whose_writer_died_in_the_middle_does_not_count(place):
    writer = Tail.create(*place)
    writer.write(1, 2, 3, 4, 5)
    writer._page[0] |= 1
    reader = Tail.open(*place)
    assert reader.read() is None
    again = Tail.create(*place)
    again.write(1, 3, 3, 4, 5)
    assert reader.read() == TailState(1, 3, 3, 4, 5)
    writer._page[20] ^= 1
    assert reader.read() is None


def test_a_missing_or_short_page_is_none(place):
    system, path = place
    assert Tail.open(system, path) is None
    file = system.open(path / TAIL_NAME, "create")
    file.truncate(100)
    assert Tail.open(system, path) is None
    file.close()
    assert Tail.create(system, path).read() is None


def test_readers_never_see_a_half_written_page():
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    writer = Tail.create(system, LOG)
    writer.write(0, 0, 0, 0, 0)
    reader = Tail.open(system, LOG)
    done = threading.Event()

    def write():
        for number in range(20_000):
            writer.write(number, number, number, number, number, number)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = -1
    while not done.is_set():
        state = reader.read()
        if state is not None:
            assert len(set(state)) == 1
            assert state.visible >= seen
            seen = state.visible
    thread.join()
    assert reader.read().visible == 19_999


def test_a_page_that_cannot_be_mapped_is_none():
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    Tail.create(system, LOG)
    with mock.patch.object(SimulatedFile, "map", side_effect=OSError("no maps here")):
        assert Tail.open(system, LOG) is None


def test_a_claim_fences_off_every_owner_before(place):
    """F123: whoever claimed last may write; those before find it out, and readers see nothing of it."""
    system, path = place
    owners = []
    for number in range(3):
        owners.append(Tail.create(system, path))
        owners[-1].claim()
        assert [owner.claimed for owner in owners] == [False] * number + [True]
    owners[-1].write(3, 2, 1, 100, 2)
    assert owners[-1].claimed
    reader = Tail.open(system, path)
    assert reader.read() == TailState(3, 2, 1, 100, 2)
    for page in (*owners, reader):
        page.close()


def test_claims_begin_anew_behind_the_greatest_number(place):
    system, path = place
    page = Tail.create(system, path)
    page._page[128:136] = b"\xff" * 8
    page.close()
    page = Tail.create(system, path)
    page.claim()
    assert page.claimed
    assert bytes(page._page[128:136]) == bytes(8)
    page.close()


class Counting:
    """What reads the counter; something else happens at one of the readings."""

    def __init__(self, at, happen):
        self.at, self.happen, self.calls = at, happen, 0

    def unpack_from(self, page):
        self.calls += 1
        if self.calls == self.at:
            self.happen()
        return _COUNTER.unpack_from(page)

    pack_into = staticmethod(_COUNTER.pack_into)


@pytest.mark.parametrize("reading", [1, 2, 3])
def test_what_is_written_while_it_is_read_is_read_again(place, reading):
    """A page is copied between two readings of its counter; one that moved meanwhile may be half old."""
    writer, reader = Tail.create(*place), Tail.open(*place)
    writer.write(1, 2, 3, 4, 5)
    counting = Counting(reading, lambda: writer.write(1, 6, 7, 8, 9))
    with mock.patch("publishers.wal.files.tail_page._COUNTER", counting):
        found = reader.read()
    assert found == (TailState(1, 6, 7, 8, 9) if reading < 3 else TailState(1, 2, 3, 4, 5))
    assert counting.calls == {1: 2, 2: 4, 3: 2}[reading]
    for tail in (writer, reader):
        tail.close()


def test_a_page_that_a_child_lets_go_of_is_neither_written_nor_believed(place):
    """F143: it is the memory of the parent."""
    parent, child = Tail.create(*place), Tail.create(*place)
    parent.claim()
    child.own = parent.own
    parent.write(1, 2, 3, 4, 5)
    assert child.claimed
    child.forked(1)
    assert not child.claimed
    assert child.read() is None
    assert not child.write(1, 9, 9, 9, 9)
    assert parent.read() == TailState(1, 2, 3, 4, 5)
    for tail in (parent, child):
        tail.close()
