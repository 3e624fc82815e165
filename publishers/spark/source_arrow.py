"""Changes as Arrow record batches: a large frame shares its column buffers without a copy; small frames are collected."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from publishers.blocks.block import Block
from publishers.blocks.decode import KEYLESS
from publishers.model.change import Area, Operation
from publishers.spark.errors import SchemaRefused
from publishers.spark.source_log import TokenPrefixes
from publishers.views.view import Content
from publishers.wal.format.columns import Column

__all__ = ["CHANGE_SCHEMA", "RecordBatches", "array_of", "chosen_schema"]

_LONGS: Final = ("version", "index", "count")
_STORED: Final = {"key": "key", "body": "body", "before": "before", "changed": "changed", "attached": "meta"}
_ORDER: Final = (
    *_LONGS, "timestamp", "area", "operation", "entity_type", "key", "body", "before", "changed", "attached",
    "position",
)  # fmt: skip


def _type_of(name: str) -> LongType | TimestampType | StringType:
    return LongType() if name in _LONGS else TimestampType() if name == "timestamp" else StringType()


CHANGE_SCHEMA: Final = StructType([StructField(name, _type_of(name)) for name in _ORDER])
"""All columns of the source."""

_IMAGES: Final = ("body", "before")
_FEW: Final = 64  # up to so many changes of a frame are collected one by one
_ROWS: Final = 8192  # approximate rows of a record batch of collected changes
_BYTES: Final = 4 * 1024 * 1024
_ENOUGH_ROWS: Final = 2048  # from here on joining record batches costs more, for the copy, than it saves in Java's work per batch
_ENOUGH_BYTES: Final = 512 * 1024
_THOUSAND: Final = 1000


def chosen_schema(names: Sequence[str]) -> StructType:
    """Returns the schema of the named columns.

    Raises:
        SchemaRefused: If a name is not a column of `CHANGE_SCHEMA`.
    """
    for name in names:
        if name not in CHANGE_SCHEMA.names:
            raise SchemaRefused(name, f"is none of {', '.join(CHANGE_SCHEMA.names)}")
    return StructType([CHANGE_SCHEMA[name] for name in names])


class RecordBatches:
    """Converts changes of a log range to record batches.

    Args:
        schema: The columns: any of `CHANGE_SCHEMA`, in any order.
        content: With HEADER, images are null.
        prefixes: The token prefixes of the range.

    Raises:
        SchemaRefused: If a column is unknown or has another type.
    """

    def __init__(self, schema: StructType, content: Content, prefixes: TokenPrefixes) -> None:
        for field, own in zip(schema, chosen_schema(schema.names), strict=True):
            if field.dataType != own.dataType:
                raise SchemaRefused(field.name, f"is {field.dataType.simpleString()}, but must be {own.dataType.simpleString()}")  # fmt: skip
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._whole = content is Content.BODY
        self._prefixes = prefixes
        self._few: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._count = self._weight = 0

    def of(self, found: Iterable[tuple[Block, Sequence[int]]]) -> Iterator[pa.RecordBatch]:
        """Yields the record batches of selected changes; ``found`` has pairs of a block and its selected indices."""
        ready: list[pa.RecordBatch] = []
        for block, indices in found:
            # The TRANSACTION event is not a row of the frame, so it is collected.
            few = len(indices) if len(indices) <= _FEW else int(not indices[0])
            if few:
                self._take(block, indices[:few])
            if few == len(indices) and self._count < _ROWS and self._weight < _BYTES:
                continue
            ready += self._flushed()
            if few < len(indices):
                ready.append(self._many(block, indices[few:]))
            if sum(map(len, ready)) >= _ENOUGH_ROWS or sum(batch.nbytes for batch in ready) >= _ENOUGH_BYTES:
                yield _joined(ready)
                ready = []
        ready += self._flushed()
        if ready:
            yield _joined(ready)

    def _flushed(self) -> list[pa.RecordBatch]:
        """Returns the collected changes as a record batch, and starts a new collection."""
        if not self._count:
            return []
        arrays = [array_of(self._few[field.name], field) for field in self.schema]
        self._few = {name: [] for name in self._few}
        self._count = self._weight = 0
        return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]

    def _take(self, block: Block, indices: Sequence[int]) -> None:
        for name, values in self._few.items():
            values.extend(self._values(block, indices, name))
        self._count += len(indices)
        self._weight += block.weight

    def _values(self, block: Block, indices: Sequence[int], name: str) -> Iterable[Any]:
        match name:
            case "version":
                return [block.version] * len(indices)
            case "index":
                return indices
            case "count":
                return [block.transaction_count] * len(indices)
            case "timestamp":
                return [block.committed_at] * len(indices)
            case "area":
                return [block.area(index).name for index in indices]
            case "operation":
                return [block.operation(index).name for index in indices]
            case "entity_type":
                return [block.entity_type(index) for index in indices]
            case "key":
                return map(block.key, indices)
            case "position":
                version, of = block.version, self._prefixes.of
                return [f"{of(version, index)}:{version}:{index}" for index in indices]
            case _:
                pass
        return [self._stored(block, name, index) for index in indices]

    def _stored(self, block: Block, name: str, index: int) -> bytes | None:
        """Returns the stored bytes of a column; computes them for the TRANSACTION event, which has no row."""
        if name in _IMAGES and not self._whole:
            return None
        if not index:
            return {"body": block.body(0), "attached": block.annotations or None}.get(name)
        column: Column | None = getattr(block.columns, _STORED[name])
        return None if column is None else column[index - block.first_index]

    def _many(self, block: Block, indices: Sequence[int]) -> pa.RecordBatch:
        """Converts rows of one frame, sharing its buffers."""
        arrays = [self._column(block, field) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if len(indices) == block.count:
            return batch
        rows = pc.subtract(pa.array(indices, pa.int64()), block.first_index)
        return batch.take(rows)

    def _column(self, block: Block, field: pa.Field) -> pa.Array:
        rows, columns = block.count, block.columns
        match field.name:
            case "version" | "count" | "timestamp":
                value = {
                    "version": block.version,
                    "count": block.transaction_count,
                    "timestamp": block.committed_at,
                }
                return pa.repeat(pa.scalar(value[field.name], field.type), rows)
            case "index":
                return _indices(block)
            case "area":
                return _named(block, Area, 4)
            case "operation":
                return _named(block, Operation, 0)
            case "entity_type":
                if columns.type_ids is None:
                    return pa.repeat(columns.entity_types[0], rows)
                ids = pa.Array.from_buffers(pa.uint16(), rows, [None, pa.py_buffer(columns.type_ids)])
                return pa.array(columns.entity_types).take(ids)
            case "position":
                # An epoch never begins inside a frame, so one prefix serves all rows.
                prefix = f"{self._prefixes.of(block.version, block.first_index)}:{block.version}:"
                return _numbered(prefix, block.first_index, rows)
            case _:
                pass
        stored: Column | None = getattr(columns, _STORED[field.name])
        if stored is None or (field.name in _IMAGES and not self._whole):
            return pa.nulls(rows, field.type)
        array = _borrowed(stored, rows)
        if field.name == "key" and KEYLESS in columns.kinds.tobytes():
            return pc.if_else(pc.equal(_kinds(block), KEYLESS), None, array)
        return array


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def array_of(values: list[Any], field: pa.Field) -> pa.Array:
    """Returns the values of collected changes as a column."""
    if field.name in _STORED:  # a view, not a cast: the log's bytes may not be valid UTF-8
        return pa.array(values, pa.binary()).view(pa.string())
    return pa.array(values, field.type)


def _borrowed(column: Column, rows: int) -> pa.Array:
    """Returns a column of the log as an array that shares its memory."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _named(block: Block, kind: type[Area | Operation], shift: int) -> pa.Array:
    names, kinds = _names(kind, shift), block.columns.kinds.tobytes()
    if kinds.count(kinds[:1]) == len(kinds):
        return pa.repeat(names[kinds[0]], len(kinds))
    return names.take(_kinds(block))


def _numbered(prefix: str, first: int, count: int) -> pa.Array:
    """Returns the texts ``prefix`` + number for ``count`` numbers from ``first``; several times as fast as Arrow's own functions."""
    found = []
    end = first + count
    while first < end:
        # Numbers with equally many digits give texts of one length; a thousand numbers share all but the last three digits.
        digits = len(str(first))
        stop = min(end, 10**digits)
        data = b"".join(
            _in_thousand(prefix.encode(), number, max(first, number), min(stop, number + _THOUSAND))
            for number in range(first - first % _THOUSAND, stop, _THOUSAND)
        )
        size = pa.scalar(len(prefix) + digits, pa.int32())
        offsets = pc.multiply(_counting(stop - first + 1, pa.int32()), size)
        buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
        found.append(pa.Array.from_buffers(pa.string(), stop - first, buffers))
        first = stop
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _in_thousand(prefix: bytes, number: int, first: int, stop: int) -> bytes:
    if not number:
        return prefix + prefix.join(b"%d" % one for one in range(first, stop))
    head = b"%b%d" % (prefix, number // _THOUSAND)
    return head + head.join(_three_digits()[first - number : stop - number])


@lru_cache(maxsize=1)
def _three_digits() -> tuple[bytes, ...]:
    return tuple(b"%03d" % number for number in range(_THOUSAND))


def _kinds(block: Block) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), block.count, [None, pa.py_buffer(block.columns.kinds)])


def _indices(block: Block) -> pa.Array:
    return pc.add(_counting(block.count, pa.int64()), pa.scalar(block.first_index, pa.int64()))


def _counting(count: int, kind: pa.DataType) -> pa.Array:
    """Returns the numbers from 0 up to ``count``, exclusive."""
    return _counted((count - 1).bit_length(), kind).slice(0, count)


@lru_cache(maxsize=32)
def _counted(bits: int, kind: pa.DataType) -> pa.Array:
    return pa.array(range(1 << bits), kind)


@lru_cache(maxsize=2)
def _names(kind: type[Area | Operation], shift: int) -> pa.Array:
    """Returns the name of the area or operation for each kind byte. Not made at import, since Arrow would load pandas then."""
    named = {member.value: member.name for member in kind}
    return pa.array([named.get(stored >> shift & 15) for stored in range(256)])
