"""F49: how a damaged file is taken apart."""

from pathlib import Path
from zlib import crc32

import pytest

from publishers.wal.checks.pieces import Good, pieces
from publishers.wal.format.frame import CONTROL, FIRST, LAST, Chain, seal
from tests.simulation.filesystem import SimulatedFileSystem

PLACE = Path("/log/pieces")


class Strip:
    """A file of frames, one behind the other."""

    def __init__(self):
        self.data = bytearray()
        self.crc = 0

    def put(self, version, *, first_index=1, flags=FIRST | LAST, transaction_count=2, payload=b"payload!"):
        """Appends a frame that follows the last one; answers where it begins."""
        at = len(self.data)
        made, header = seal(
            len(payload), crc32(payload), self.crc, 1, version, first_index, flags, 0, version, bytes(16), 0,
            transaction_count, len(payload),
        )  # fmt: skip
        self.data += made + payload
        self.crc = header.crc
        return at

    def taken(self, beyond=0):
        system = SimulatedFileSystem.of(PLACE.parent, {PLACE.name: bytes(self.data)})
        found = pieces(system.open(PLACE, "read"), 0, len(self.data) + beyond, Chain(0, 0))
        return [
            (one.offset, one.header.version) if isinstance(one, Good) else (one.offset, one.kind, one.until)
            for one in found
        ]


def test_behind_a_damage_it_goes_on_with_the_next_frame_that_proves_itself():
    strip = Strip()
    strip.put(1)
    bad, good = strip.put(2), strip.put(3)
    strip.data[bad + 82] ^= 1
    assert strip.taken() == [(0, 1), (bad, "crc", good), (good, 3)]


@pytest.mark.parametrize(
    "wrong",
    [{"first_index": 7}, {"transaction_count": 9}, {"flags": CONTROL | FIRST}],
    ids=["index", "count", "flags"],
)
def test_an_intact_frame_that_can_continue_nothing_is_passed_over(wrong):
    """It is right by its crc and wrong by itself; the damage before it is told once, and the search goes on."""
    strip = Strip()
    strip.put(1)
    bad, strange = strip.put(2), strip.put(3, **wrong)
    strip.data[bad + 82] ^= 1
    good = strip.put(4)
    assert strip.taken() == [(0, 1), (bad, "crc", strange), (good, 4)]


def test_an_intact_frame_with_flags_that_nobody_knows_is_none():
    strip = Strip()
    strip.put(1)
    bad = strip.put(2)
    strip.put(3, flags=FIRST | LAST | 1 << 20)
    strip.data[bad + 82] ^= 1
    assert strip.taken() == [(0, 1), (bad, "crc", None)]


@pytest.mark.parametrize("missing", [1, 8, 40, 88])
def test_a_file_that_is_shorter_than_it_should_be_ends_like_one_of_zeros(missing):
    """What recovery cut off is kept without the zeros at its end."""
    strip = Strip()
    strip.put(1)
    cut = strip.put(2)
    strip.data += b"\xff" * 100
    del strip.data[-missing:]
    assert strip.taken(beyond=4096)[:2] == [(0, 1), (cut, 2)]
