import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.wal.control import Epoch, ProducerState, Tables, decode_control, encode_epoch


def tables(count=3):
    made = Tables()
    for number in range(count):
        made.committed(bytes([number]) * 16, ProducerState(number, number + 1, 100 + number))
    made.opened(1, 1)
    made.opened(2, 10)
    return made


def test_a_checkpoint_restores_both_tables():
    restored = Tables()
    restored.committed(b"\xff" * 16, ProducerState(1, 1, 1))
    assert decode_control(tables().encode(), restored)
    assert list(restored.producers.items()) == list(tables().producers.items())
    assert restored.epochs == (Epoch(1, 1), Epoch(2, 10))


def test_an_epoch_frame_adds_to_the_tables():
    restored = tables()
    assert not decode_control(encode_epoch(Epoch(3, 20)), restored)
    assert restored.epochs == (Epoch(1, 1), Epoch(2, 10), Epoch(3, 20))


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
    assert made.epochs == (Epoch(2, 10),)


@given(
    st.one_of(
        st.binary(max_size=120),
        st.integers(0, 3).flatmap(
            lambda kind: st.binary(max_size=90).map(lambda rest: struct.pack("<II", kind, 0) + rest)
        ),
    )
)
def test_nonsense_is_a_value_error(payload):
    with contextlib.suppress(ValueError):
        decode_control(payload, Tables())


def test_a_checkpoint_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="3 producers and 2 epochs"):
        decode_control(tables().encode()[:-1], Tables())
