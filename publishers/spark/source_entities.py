"""Changes of one entity type as rows with the entity's own columns, typed by its schema in the log.

Rows also have the columns of Spark's change feeds, and the key. The before image of an update is a row of its own, ahead of the
row of the after image.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of
from publishers.lossless import mistakable, reader
from publishers.model.change import Operation
from publishers.spark.errors import SchemaRefused
from publishers.spark.source_arrow import RecordBatches, chosen_schema
from publishers.spark.source_images import EntityImages
from publishers.spark.source_log import TokenPrefixes
from publishers.views.view import Content

__all__ = ["CHANGE_TYPES", "FEED_SCHEMA", "TypedBatches", "typed_schema"]

FEED_SCHEMA: Final = StructType(
    [
        StructField("_key", StringType()),
        StructField("_change_type", StringType()),
        StructField("_commit_version", LongType()),
        StructField("_commit_timestamp", TimestampType()),
        StructField("_index", LongType()),
    ]
)
"""The columns in addition to the entity's. Three have the names of Spark's ``CHANGES`` and of Delta's change feed."""

CHANGE_TYPES: Final[Mapping[Operation, str]] = {
    Operation.UPSERT: "update_postimage",
    Operation.REMOVE: "delete",
    Operation.EXPIRE: "delete",
    Operation.TRUNCATE: "truncate",
}
"""The ``_change_type`` of each operation; the row of a before image is an ``update_preimage``."""

_PREIMAGE: Final = "update_preimage"
_TEXTS: Final = frozenset({"char", "varchar", "uuid", "duration", "interval", "void"})
_MADE_OF: Final = ("key", "operation", "version", "timestamp", "index")
_IMAGES: Final = ("body", "before", "attached")
CHANGE_COLUMNS: Final = (*_MADE_OF, *_IMAGES)
"""The columns of changes that entity rows are made from."""


def typed_schema(entity_schema: Any, columns: Sequence[str] | None = None) -> StructType:
    """Returns the columns of an entity by its schema, followed by those of `FEED_SCHEMA`.

    Args:
        entity_schema: The part of the schema that describes the entity, parsed.
        columns: The columns to select; None for all.

    Raises:
        SchemaRefused: If Spark has no such type, a name is unknown, or the entity has a column of `FEED_SCHEMA`.
    """
    try:
        entity = StructType.fromJson(_nullable(entity_schema))
    except (KeyError, TypeError, ValueError, AttributeError, PySparkException) as error:
        raise SchemaRefused(
            "*", f"is told by a schema that is no struct of Spark's types ({error})"
        ) from None
    if twice := set(entity.names) & set(FEED_SCHEMA.names):
        raise SchemaRefused(twice.pop(), "is one of the source, and of the entity as well; read it without schema=entity")  # fmt: skip
    whole = StructType([*entity.fields, *FEED_SCHEMA.fields])
    for name in columns or ():
        if name not in whole.names:
            raise SchemaRefused(name, f"is none of {', '.join(whole.names)}")
    return whole if columns is None else StructType([whole[name] for name in columns])


def _nullable(kind: Any) -> Any:
    """Returns the type with null allowed everywhere, as removals need, and with string for types without a Spark column."""
    if isinstance(kind, str):
        return "string" if kind.partition("(")[0].partition(" ")[0] in _TEXTS else kind
    match kind["type"]:
        case "struct":
            fields = [
                {"name": one["name"], "type": _nullable(one["type"]), "nullable": True, "metadata": {}}
                for one in kind["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
        case "map":
            types = {name: _nullable(kind[name]) for name in ("keyType", "valueType")}
            return {"type": "map", **types, "valueContainsNull": True}
        case other:
            raise ValueError(f"{other!r} is no type")


class TypedBatches:
    """Converts changes of whole entities in a log range to record batches.

    Args:
        schema: The columns: any of `FEED_SCHEMA`, and fields of the entity.
        prefixes: The token prefixes of the range; unused, as no row has a token.
        told: Returns a schema of the entity type by its version, parsed; None if there is none.

    Raises:
        SchemaRefused: If Arrow lacks a type, or a column of `FEED_SCHEMA` has another type.
    """

    def __init__(self, schema: StructType, prefixes: TokenPrefixes, told: Callable[[int], Any]) -> None:
        for field in schema:
            own = FEED_SCHEMA[field.name].dataType if field.name in FEED_SCHEMA.names else field.dataType
            if field.dataType != own:
                raise SchemaRefused(field.name, f"is {field.dataType.simpleString()}, but must be {own.simpleString()}")  # fmt: skip
        self._entity = StructType([field for field in schema if field.name not in FEED_SCHEMA.names])
        self._images = EntityImages(self._entity)
        self._told = told
        self._by_version: dict[int, EntityImages] = {}
        self._changes = RecordBatches(chosen_schema(CHANGE_COLUMNS), Content.BODY, prefixes)
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def of(self, found: Iterable[tuple[Block, Sequence[int]]]) -> Iterator[pa.RecordBatch]:
        """Yields the record batches of selected changes; ``found`` has pairs of a block and its selected indices."""
        whole = ((block, _of_entities(block, indices)) for block, indices in found)
        for batch in self._changes.of((block, indices) for block, indices in whole if indices):
            yield self.typed(batch)

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Converts a batch of changes of whole entities, with `CHANGE_COLUMNS`, to typed rows."""
        upserts = pc.equal(batch.column("operation"), Operation.UPSERT.name)
        body, before = batch.column("body"), batch.column("before")
        columns = [batch.column(name) for name in _MADE_OF]
        columns[1] = _change_types().take(pc.index_in(columns[1], _operations()))
        rows = [*columns, batch.column("attached"), pc.if_else(upserts, body, before)]
        if pc.any(both := pc.and_(upserts, before.is_valid())).as_py():
            rows = _with_preimages(rows, before, both)
        *feed, attached, images = rows
        found = dict(zip(FEED_SCHEMA.names, feed, strict=True))
        found |= self._read(images, attached, found["_commit_version"], found["_index"])
        return pa.RecordBatch.from_arrays([found[name] for name in self._schema.names], schema=self._schema)

    def _read(
        self, images: pa.Array, attached: pa.Array, versions: pa.Array, indices: pa.Array
    ) -> dict[str, pa.Array]:
        """Returns the entity's columns; each image is read by the schema version that its change is stamped with."""
        # Usually all are stamped alike; comparing each with the next one takes less than a nanosecond a row.
        if attached.slice(1).equals(attached.slice(0, max(len(attached) - 1, 0))):
            stamp = attached[0].as_buffer() if len(attached) else None
            return self._parser(None if stamp is None else stamp.to_pybytes()).read(images, versions, indices)
        stamped = attached.dictionary_encode("encode")
        parsers = [self._parser(stamp) for stamp in stamped.dictionary.cast(pa.binary()).to_pylist()]
        several = list(dict.fromkeys(parsers))
        if len(several) < 2:
            return (several or [self._images])[0].read(images, versions, indices)
        numbers = pa.array([several.index(one) for one in parsers]).take(stamped.indices)
        parts, places = [], []
        for number, parser in enumerate(several):
            mask = pc.equal(numbers, number)
            parts.append(parser.read(*(column.filter(mask) for column in (images, versions, indices))))
            places.append(pc.indices_nonzero(mask))
        order = pc.sort_indices(pa.concat_arrays(places))
        return {name: pa.concat_arrays([part[name] for part in parts]).take(order) for name in parts[0]}

    def _parser(self, stamp: bytes | None) -> EntityImages:
        version = attached_of(stamp).schema_version
        if version is None:
            return self._images
        if version not in self._by_version:
            written = _spark_schema(self._told(version))
            plain = written is None or not mistakable(self._entity.jsonValue(), written)
            self._by_version[version] = self._images if plain else EntityImages(self._entity, written)
        return self._by_version[version]


def _spark_schema(told: Any) -> Any:
    """Returns a schema if it is one of Spark's types; writers may publish any other form, which says nothing here."""
    try:
        reader(told)
    except (ValueError, TypeError, AttributeError):
        return None
    return told if isinstance(told, Mapping) and told["type"] == "struct" else None


def _of_entities(block: Block, indices: Sequence[int]) -> Sequence[int]:
    """Returns the indices without field-level changes, which accompany a change of the whole entity."""
    if block.columns.meta is None or b'"field"' not in bytes(block.columns.meta.data):
        return indices  # without a look at each change, which takes half of the time of a read
    whole = [index for index in indices if block.attached(index).field is None]
    return indices if len(whole) == len(indices) else whole


def _with_preimages(rows: list[pa.Array], before: pa.Array, both: pa.Array) -> list[pa.Array]:
    """Inserts a preimage row ahead of each row that has both images."""
    places = pa.array(range(len(both)), pa.int64())
    order = pc.sort_indices(pa.concat_arrays([places.filter(both), places]))
    extra = [column.filter(both) for column in [*rows[:-1], before]]
    extra[1] = pa.repeat(_PREIMAGE, len(extra[1]))
    # The sort is stable: of two equal places, the preimage stays first.
    return [pa.concat_arrays(pair).take(order) for pair in zip(extra, rows, strict=True)]


@lru_cache(maxsize=1)
def _operations() -> pa.Array:
    return pa.array([one.name for one in CHANGE_TYPES])


@lru_cache(maxsize=1)
def _change_types() -> pa.Array:
    return pa.array(CHANGE_TYPES.values())
