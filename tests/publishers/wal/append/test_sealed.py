import random
from uuid import UUID, uuid4

import pytest

from publishers.errors import KeyTooLong, TransactionTooLarge
from publishers.wal import Column, Columns, Rows, decode_payload, seal_rows, seal_transaction
from publishers.wal.format.compression import inflate
from publishers.wal.format.frame import COMPRESSED, NO_PRODUCER
from tests.harness.constants import set_bounds, without_bounds
from tests.publishers.wal.logs import OPTIONS, batch, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG


def bodies(transaction):
    found = []
    for payload, stored in transaction.read():
        data = inflate(stored, payload.raw) if payload.flags & COMPRESSED else stored
        assert payload.first_index == len(found) + 1
        columns, _ = decode_payload(data, payload.count)
        found += list(columns.body) if columns.body else [None] * payload.count
    return found


@pytest.fixture
def disk():
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    return system


def test_a_small_transaction_is_one_frame():
    transaction = sealed(b"a", None, b"c", annotations=b'{"x":1}')
    (payload,) = transaction.payloads
    transaction.discard()  # there is nothing to remove
    assert bodies(transaction) == [b"a", None, b"c"]
    assert decode_payload(payload.data, 3)[1] == b'{"x":1}'
    assert (transaction.count, transaction.bytes) == (3, payload.length)
    assert transaction.size == 80 + (payload.length + 7) // 8 * 8
    assert (transaction.producer, transaction.producer_id, transaction.sequence) == (NO_PRODUCER, None, 0)


def test_a_transaction_without_changes_still_has_its_annotations():
    transaction = sealed(annotations=b"{}")
    (payload,) = transaction.payloads
    assert (transaction.count, payload.count) == (0, 0)
    assert decode_payload(payload.data, 0)[1] == b"{}"
    empty = batch(())
    assert len(seal_transaction([empty, empty, batch([b"a"]), empty], options=OPTIONS).payloads) == 2


def test_a_large_batch_is_split_where_frames_are_full_and_not_before():
    given = [b"%04d" % number * 25 for number in range(1000)]
    transaction = sealed(*given)
    assert bodies(transaction) == given
    sizes = [payload.raw for payload in transaction.payloads]
    assert max(sizes) <= OPTIONS.frame_bytes + 64
    assert min(sizes[:-1]) > OPTIONS.frame_bytes - 400
    assert transaction.bytes == sum(sizes)


def test_a_change_above_the_frame_size_has_a_frame_of_its_own():
    given = [b"a", b"b" * 9000, b"c"]
    transaction = sealed(*given)
    assert [payload.count for payload in transaction.payloads] == [1, 1, 1]
    assert bodies(transaction) == given


def test_several_batches_continue_each_other():
    transaction = seal_transaction(iter([batch([b"a", b"b"]), batch([b"c"])]), b"{}", options=OPTIONS)
    assert [payload.first_index for payload in transaction.payloads] == [1, 3]
    assert bodies(transaction) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("overrides", "given"),
    [
        ({"max_change_bytes": 1024}, [b"x" * 2000]),
        ({"max_change_bytes": 1024}, [b"x"] * 5 + [b"x" * 2000]),
        ({"max_transaction_bytes": 1024}, [b"x" * 600] * 2),
        ({"max_transaction_changes": 3}, [b"x"] * 4),
    ],
)
def test_what_is_too_large_is_refused_by_the_option_that_bounds_it(overrides, given):
    with pytest.raises(TransactionTooLarge) as caught:
        sealed(*given, settings=options(**without_bounds(overrides)))
    ((option, limit),) = overrides.items()
    assert (caught.value.option, caught.value.limit) == (option, limit)
    assert caught.value.value > limit


def test_many_changes_below_the_bound_of_one_are_not_too_large():
    sealed(*[b"x" * 300] * 20, settings=options(max_change_bytes=1024))


def test_payloads_from_four_kilobytes_are_compressed_where_that_saves_something():
    """F48."""
    settings = options(compress=True, frame_bytes=65536)
    small, large = sealed(b"x" * 100, settings=settings), sealed(b"x" * 9000, settings=settings)
    assert small.payloads[0].flags == 0
    (payload,) = large.payloads
    assert payload.flags == COMPRESSED
    assert payload.length < 200 < payload.raw == large.bytes
    assert bodies(large) == [b"x" * 9000]


def test_a_compressed_payload_never_grows_beyond_what_it_claims():
    settings = options(compress=True, frame_bytes=65536)
    (payload,) = sealed(b"x" * 9000, settings=settings).payloads
    with pytest.raises(ValueError, match="more than the 100"):
        inflate(payload.data, 100)
    with pytest.raises(ValueError, match="instead of 50"):
        inflate((50).to_bytes(4, "little") + payload.data[4:], 100)
    with pytest.raises(ValueError, match="instead of"):
        inflate(payload.data[:-6], payload.raw)
    with pytest.raises(ValueError, match="malformed"):
        inflate(payload.data[:4] + b"nonsense", payload.raw)


def test_a_large_transaction_is_spooled_and_read_back_one_payload_at_a_time(disk):
    given = [b"%04d" % number * 25 for number in range(500)]
    transaction = sealed(*given, settings=options(spool_bytes=10_000), spool=disk)
    assert transaction.spool is not None
    assert all(payload.data == b"" for payload in transaction.payloads)
    (name,) = disk.listing(LOG)
    assert name.endswith(".tmp")
    assert bodies(transaction) == given
    transaction.discard()
    transaction.discard()
    assert disk.listing(LOG) == []
    with pytest.raises(OSError, match="discarded"):
        list(transaction.read())


def test_a_spool_that_does_not_hold_what_was_written_is_noticed(disk):
    transaction = sealed(*[b"x" * 2000] * 10, settings=options(spool_bytes=10_000), spool=disk)
    (name,) = disk.listing(LOG)
    disk.content(LOG / name)[5000] ^= 1
    with pytest.raises(OSError, match="does not hold"):
        list(transaction.read())


def test_a_spool_that_fails_leaves_nothing_behind(disk):
    for number in range(1, 6):
        disk.faults = {disk.operations + number: "ENOSPC"}
        with pytest.raises(OSError, match="ENOSPC"):
            sealed(*[b"x" * 2000] * 10, settings=options(spool_bytes=3000), spool=disk)
        assert disk.listing(LOG) == []
    disk.faults = {}
    set_bounds(max_transaction_bytes=9000)
    with pytest.raises(TransactionTooLarge):
        sealed(*[b"x" * 2000] * 10, settings=options(spool_bytes=3000), spool=disk)
    assert disk.listing(LOG) == []


def test_a_lone_change_is_sealed_the_same_either_way():
    producer = uuid4()
    columns = Columns(memoryview(b"\x11"), ("Product",), None, Column.of([b"k"]), Column.of([b"body"]))
    long = seal_transaction([columns], b"{}", options=OPTIONS, producer=producer, sequence=4)
    rows = Rows(b"\x11", ["Product"], [b"k"], [b"body"], annotations=b"{}")
    short = seal_rows(rows, producer=producer, sequence=4)
    assert short.payloads == long.payloads
    assert (short.count, short.bytes, short.size, short.producer, short.sequence) == (
        long.count,
        long.bytes,
        long.size,
        long.producer,
        long.sequence,
    )
    assert short.producer_id == UUID(bytes=producer.bytes)


def test_a_key_above_its_bound_is_refused():
    """F147."""
    settings = options(max_key_bytes=16)
    keys = Column.of([b"k" * 16, b"k" * 17, b"k"])
    several = Columns(memoryview(b"\x11" * 3), ("P",), None, keys, Column.of([b""] * 3))
    with pytest.raises(KeyTooLong) as caught:
        seal_transaction([several], b"{}", options=settings)
    assert (caught.value.value, caught.value.limit) == (17, 16)
    seal_transaction([several.slice(0, 1)], b"{}", options=settings)


def test_a_few_changes_are_compressed_as_columns_are():
    rows = Rows(b"\x11", ["P"], [b"k"], [b"x" * 9000], annotations=b"{}")
    (payload,) = seal_rows(rows, compress=True).payloads
    assert payload.flags == COMPRESSED
    assert inflate(payload.data, payload.raw) == rows.payload


def test_what_does_not_get_smaller_is_not_compressed():
    settings = options(compress=True, frame_bytes=65536)
    noise = random.Random(1).randbytes(9000)
    assert sealed(noise, settings=settings).payloads[0].flags == 0


def test_a_spool_that_a_child_lets_go_of_is_neither_used_nor_removed(disk):
    """F143: the parent reads it still."""
    transaction = sealed(*[b"x" * 2000] * 10, settings=options(spool_bytes=10_000), spool=disk)
    names = disk.listing(LOG)
    transaction.spool.forked(1)
    transaction.discard()
    assert disk.listing(LOG) == names
    with pytest.raises(OSError, match="discarded"):
        bodies(transaction)
    with pytest.raises(OSError, match="discarded"):
        transaction.spool.write(transaction.payloads[0])
