"""Arrow record batches as columns of the log; bytes are shared, not copied, and no Python loop visits rows.

A string or binary array of Arrow has the layout of a frame's column: a validity bitmap, ``i32`` offsets, and bytes. Three
cases differ: the offsets of a sliced array do not begin at 0, its bitmap may not begin at a byte boundary, and the "large"
types have ``i64`` offsets. One call into Arrow normalizes each.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from publishers.model.change import Area, Operation
from publishers.spark.errors import RowRefused
from publishers.spark.schema import IMAGES, Encoding, Operations
from publishers.wal.format.columns import Column, Columns

__all__ = [
    "ENTITY_TYPE_MAX",
    "ContentDigest",
    "column_of",
    "columns_of",
    "keyless",
    "kind_of",
    "operation_names",
    "pieces",
]

ENTITY_TYPE_MAX: Final = 1024
"""Maximum length of an entity type in characters."""
_ROW_BYTES: Final = 13  # overhead of a row: kind, type, two offsets, two validity bits
_FRAME_BYTES: Final = 1024  # overhead of a frame, for entity types with names of usual length
_MOST_TYPES: Final = 2**16


def kind_of(operation: Operation) -> int:
    """Returns the kind byte, as frames store it, of a DATA change with this operation."""
    return Area.DATA * 16 + operation


@lru_cache
def operation_names(operations: Operations) -> pa.Array:
    """Returns the operation words as an array for lookups."""
    return pa.array([name for name, _ in operations])


@lru_cache
def _kinds_of(operations: Operations) -> pa.Array:
    return pa.array([kind_of(operation) for _, operation in operations], pa.uint8())


class ContentDigest:
    """Row count and checksum of a batch: one CRC-32 of all keys, one of all bodies.

    The digest does not depend on how the batch was split into frames.
    """

    __slots__ = ("_bodies", "_keys", "rows")

    def __init__(self) -> None:
        self.rows: int = 0
        self._keys = 0
        self._bodies = 0

    def add(self, columns: Columns) -> None:
        """Adds the next columns of the batch."""
        self.rows += columns.count
        self._keys = zlib.crc32(columns.key.data, self._keys)
        if columns.body is not None:
            self._bodies = zlib.crc32(columns.body.data, self._bodies)

    def __str__(self) -> str:
        return f"{self._keys:08x}{self._bodies:08x}"


def column_of(array: pa.Array) -> Column:
    """Wraps a string or binary array as a column, without copying its bytes."""
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    count = len(array)
    if count == 0:
        return Column.of([])
    _, offsets, data = array.buffers()
    numbers = memoryview(offsets).cast("B").cast("i")[array.offset : array.offset + count + 1]
    first, end = numbers[0], numbers[count]
    if first:
        raw = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], offset=array.offset)
        shifted = pc.subtract(raw, pa.scalar(first, pa.int32()))
        numbers = _values(shifted, "i")
    content = memoryview(b"") if data is None else memoryview(data).cast("B")[first:end]
    return Column(_bitmap(array), numbers, content)


def columns_of(batch: pa.RecordBatch, encoding: Encoding, entity_type: str | None) -> Columns:
    """Converts a record batch of `Encoding.select` to the columns of one frame.

    Args:
        batch: The encoded rows.
        encoding: The encoding that selected them.
        entity_type: The entity type of all rows; None if a column names it.

    Raises:
        RowRefused: If a row is flawed, or has no key, no known operation, or no valid entity type.
    """
    if (
        encoding.flaw_column is not None
        and (flawed := batch.filter(batch.column("flawed").is_valid())).num_rows
    ):
        first = flawed.slice(0, 1).to_pylist()[0]
        raise RowRefused(
            first["flawed"], f"{first['flaw']}; {flawed.num_rows} of {batch.num_rows} rows have such a flaw"
        )
    keys = batch.column("key")
    if keys.null_count:
        raise RowRefused(", ".join(encoding.key), f"is null in {keys.null_count} of {len(keys)} rows, which thus have no key; filter them out or fill them")  # fmt: skip
    if empty := pc.sum(keyless(batch, encoding)).as_py():
        raise RowRefused(", ".join(encoding.key), f"is empty in {empty} of {len(keys)} rows, which thus have no key; filter them out or fill them")  # fmt: skip
    names, type_ids = _entity_types(batch, encoding, entity_type)
    return Columns(
        _kinds(batch, encoding),
        names,
        type_ids,
        column_of(keys),
        _image(batch, "body"),
        None if encoding.before is None else _image(batch, "before"),
    )


def keyless(batch: pa.RecordBatch, encoding: Encoding) -> pa.BooleanArray:
    """Marks the rows with an empty key, except TRUNCATE rows, which need no key."""
    empty = pc.equal(pc.binary_length(batch.column("key")), 0)
    if encoding.operation_column is None or not encoding.truncating:
        return empty
    operation = batch.column("operation")
    words = pa.array(encoding.truncating, operation.type)
    return pc.and_(empty, pc.invert(pc.is_in(operation, value_set=words)))


def _image(batch: pa.RecordBatch, name: str) -> Column | None:
    images = batch.column(name)
    return None if images.null_count == len(images) else column_of(images)


def _sized(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in IMAGES if name in batch.schema.names]


def pieces(batches: Iterable[pa.RecordBatch], piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Splits and joins record batches so that each fills one frame; a row that exceeds a frame gets a piece of its own.

    Args:
        batches: The record batches from Spark, in order. Small batches of several partitions are joined.
        piece_bytes: Maximum bytes of a frame's payload.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        need = _size(batch)
        if waiting and size + need > piece_bytes:
            yield from _cut(_joined(waiting), piece_bytes)
            waiting, size = [], 0
        waiting.append(batch)
        size += need
    if waiting:
        yield from _cut(_joined(waiting), piece_bytes)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _cut(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    limit = piece_bytes - _FRAME_BYTES
    if _size(batch) <= limit:
        yield batch
        return
    views = [_offsets(array) for array in _sized(batch)]
    start = 0
    while start < rows:
        most = _total(views, start) + limit
        end = bisect_right(range(rows + 1), most, lo=start + 1, key=partial(_total, views)) - 1
        end = max(end, start + 1)
        yield batch.slice(start, end - start)
        start = end


def _total(views: Sequence[memoryview], row: int) -> int:
    """Returns the bytes of all rows before ``row``. The value rises with ``row``, so bisection finds the split point."""
    return sum(view[row] for view in views) + row * _ROW_BYTES


def _offsets(array: pa.Array) -> memoryview:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    raw: memoryview = memoryview(array.buffers()[1]).cast("B")
    numbers = raw.cast("q") if wide else raw.cast("i")
    return numbers[array.offset : array.offset + len(array) + 1]


def _size(batch: pa.RecordBatch) -> int:
    total = batch.num_rows * _ROW_BYTES
    for array in _sized(batch):
        numbers = _offsets(array)
        total += numbers[-1] - numbers[0]
    return int(total)


def _values(array: pa.Array, code: Literal["B", "H", "i"]) -> memoryview:
    """Returns the values of a numeric array without nulls, as a memoryview."""
    numbers: memoryview = memoryview(array.buffers()[1]).cast("B").cast(code)
    return numbers[array.offset : array.offset + len(array)]


def _bitmap(array: pa.Array) -> memoryview | None:
    if array.null_count == 0:
        return None
    there = array.is_valid()
    if there.offset:
        there = pa.concat_arrays([there, pa.array([], pa.bool_())])
    return memoryview(there.buffers()[1]).cast("B")[: (len(array) + 7) // 8]


def _kinds(batch: pa.RecordBatch, encoding: Encoding) -> memoryview:
    if encoding.operation_column is None:
        return memoryview(bytes((kind_of(encoding.operation),)) * batch.num_rows)
    given = batch.column("operation")
    known = operation_names(encoding.operations)
    found = pc.index_in(given, value_set=known.cast(given.type))
    if found.null_count:
        strange = ", ".join(
            repr(value) for value in pc.unique(given.filter(found.is_null())).slice(0, 5).to_pylist()
        )
        raise RowRefused(
            encoding.operation_column, f"names {strange}, but must be one of {', '.join(known.to_pylist())}"
        )
    return _values(_kinds_of(encoding.operations).take(found), "B")


def _entity_types(batch: pa.RecordBatch, encoding: Encoding, entity_type: str | None) -> tuple[tuple[str, ...], memoryview | None]:  # fmt: skip
    column = encoding.entity_type_column
    if column is None:
        if entity_type is None:
            raise ValueError("entity_type is None, but must be a name unless a column tells it")
        return (entity_type,), None
    given = batch.column("entity_type")
    if given.null_count:
        raise RowRefused(
            column, f"is null in {given.null_count} of {len(given)} rows; each change needs an entity type"
        )
    encoded = given.dictionary_encode()
    names = tuple(encoded.dictionary.to_pylist())
    if not all(1 <= len(name) <= ENTITY_TYPE_MAX for name in names):
        raise RowRefused(
            column,
            f"has values that are no entity types, which are texts of 1 to {ENTITY_TYPE_MAX} characters",
        )
    if len(names) > _MOST_TYPES:
        raise RowRefused(
            column, f"has {len(names)} different values among {len(given)} rows, which are no entity types"
        )
    return names, None if len(names) == 1 else _values(encoded.indices.cast(pa.uint16()), "H")
