import contextlib
import struct
from collections import OrderedDict
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.errors import FormatTooNew
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.format.control import (
    OWNER_BYTES,
    ControlTables,
    Epoch,
    Kind,
    ProducerKind,
    ProducerState,
    decode_control,
    draw_random,
    encode_epoch,
    marked,
    unmarked,
)

RANDOM = 2**64 - 2


def tables(count=3):
    made = ControlTables()
    for number in range(count):
        made.committed(bytes([number]) * 16, ProducerState(number, number + 1, 100 + number))
    made.opened(1, 1)
    made.opened(2, 10, RANDOM)
    return made


def test_a_checkpoint_restores_both_tables():
    restored = ControlTables()
    restored.committed(b"\xff" * 16, ProducerState(1, 1, 1))
    assert decode_control(tables().encode(), restored) is Kind.CHECKPOINT
    assert list(restored.producers.items()) == list(tables().producers.items())
    assert restored.epochs == (Epoch(1, 1), Epoch(2, 10, RANDOM))


def test_producers_of_an_owner_are_counted_while_others_are_added():
    """Any thread may ask; the table is walked again if it has grown meanwhile."""
    owner = b"\x01" * 6
    remote = owner + bytes([0x80]) + bytes(9)

    class Growing(OrderedDict):
        walks = 0

        def __reversed__(self):
            self.walks += 1
            if self.walks == 1:
                raise RuntimeError("OrderedDict mutated during iteration")
            return super().__reversed__()

    made = ControlTables()
    made.committed(remote, ProducerState(1, 1, 100))
    made.committed(bytes(16), ProducerState(1, 2, 100))
    growing = made._owned[owner] = Growing(made._owned[owner])
    assert made.of_owner(owner, 100) == 1
    assert made.of_owner(owner, 101) == 0
    assert growing.walks == 3


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("flooding", ProducerKind)
def test_a_flood_of_names_displaces_only_names_of_its_own_kind_and_owner(flooding, restored):
    """F147: of each kind there is a bound, and who has most of it loses what it used longest ago."""

    def named(kind, owner, number):
        name = bytes([owner]) * OWNER_BYTES + bytes([0x10 if kind is ProducerKind.LOCAL else 0x80, 0, 0x80])
        name += number.to_bytes(7, "big")
        return marked(name) if kind is ProducerKind.CONNECTION else name

    made, most, versions = ControlTables(), 10, count(1)

    def commit(name):
        made.committed(name, ProducerState(1, version := next(versions), version), most)

    others = {
        named(kind, owner, number): kind
        for kind in ProducerKind
        for owner in (1, 2)
        for number in (1, 2)
        if kind is not flooding or (owner == 2 and kind is not ProducerKind.LOCAL)
    }
    for name in others:
        commit(name)
    for number in range(50):
        commit(named(flooding, 1, number + 10))
        if restored:
            encoded, made = made.encode(), ControlTables()
            decode_control(encoded, made)
    made.prune(most, 0, 0)
    assert set(others) <= set(made.producers)
    room = most - list(others.values()).count(flooding)
    left = [name for name in made.producers if name not in others]
    assert left == [named(flooding, 1, number + 10) for number in range(50)][-room:]


def test_a_producer_of_a_connection_is_told_by_its_id_and_was_not_before():
    """F147: what an older version has stored of it is found."""
    remote = bytes(6) + bytes([0x80, 0, 0x95]) + bytes(7)
    assert marked(remote) != remote == unmarked(marked(remote)) == unmarked(remote)
    local = bytes(6) + bytes([0x50, 0, 0xD5]) + bytes(7)
    assert unmarked(local) == local


def test_an_epoch_frame_adds_to_the_tables():
    restored = tables()
    assert decode_control(encode_epoch(Epoch(3, 20, 5)), restored) is Kind.EPOCH
    assert restored.epochs == (Epoch(1, 1), Epoch(2, 10, RANDOM), Epoch(3, 20, 5))


def test_the_tables_of_format_1_have_epochs_without_random_bits():
    checkpoint = struct.pack("<IIII16sQQqQQ", 1, 0, 1, 1, bytes(16), 2, 3, 4, 5, 6)
    restored = ControlTables()
    assert decode_control(checkpoint, restored) is Kind.CHECKPOINT
    assert decode_control(struct.pack("<IIQQ", 2, 0, 7, 8), restored) is Kind.EPOCH
    assert restored.producers == {bytes(16): ProducerState(2, 3, 4)}
    assert restored.epochs == (Epoch(5, 6), Epoch(7, 8))


def test_what_a_later_version_writes_is_told_to_be_too_new_and_not_to_be_damaged():
    """F144: by its format, or by a kind that came later."""
    for payload, found, known in (
        (struct.pack("<II", 1, 3), 3, 2),
        (struct.pack("<II", 9, 2), 9, max(Kind)),
        (struct.pack("<II", 9, 3), 3, 2),
    ):
        with pytest.raises(FormatTooNew) as caught:
            decode_control(payload, ControlTables())
        assert (caught.value.found, caught.value.known) == (found, known)


def test_random_bits_are_drawn_where_the_files_are_and_are_never_none():
    class Dull:
        def random_bytes(self, size):
            return bytes(size)

    assert draw_random(Dull()) == 1
    assert draw_random(RealFileSystem()) != draw_random(RealFileSystem())


def test_an_epoch_without_versions_is_replaced_by_the_next():
    made = tables()
    made.opened(3, 10)
    made.opened(4, 10)
    assert made.epochs == (Epoch(1, 1), Epoch(4, 10))


def test_a_producer_that_commits_again_moves_to_the_end():
    made = tables()
    made.committed(bytes(16), ProducerState(9, 50, 500))
    assert list(made.producers)[-1] == bytes(16)
    made.prune(1, 0, 0)
    assert list(made.producers) == [bytes(16)]
    assert made.forgotten == 2


def test_idle_producers_and_ended_epochs_are_pruned():
    made = tables()
    made.prune(10, 101, 9)
    assert len(made.producers) == 2
    assert len(made.epochs) == 2
    made.prune(10, 1000, 10)
    assert not made.producers
    assert (
        len(made.epochs) == 2
    )  # the first wrote the version before the oldest, which a position there names
    made.prune(10, 1000, 11)
    assert made.epochs == (Epoch(2, 10, RANDOM),)


@given(
    st.one_of(
        st.binary(max_size=120),
        st.integers(0, 3).flatmap(
            lambda kind: st.binary(max_size=90).map(
                lambda rest: struct.pack("<II", kind, 2 * (len(rest) % 2)) + rest
            )
        ),
    )
)
def test_nonsense_is_a_value_error_or_too_new(payload):
    with contextlib.suppress(ValueError, FormatTooNew):
        decode_control(payload, ControlTables())


def test_a_checkpoint_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="3 producers and 2 epochs"):
        decode_control(tables().encode()[:-1], ControlTables())
