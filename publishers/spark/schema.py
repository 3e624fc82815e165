"""What of a DataFrame becomes key and body, and the expressions that make them in the JVM without losing anything.

The body is JSON of a row's columns. As Spark writes it by default, JSON drops nulls and everything below a millisecond;
with ``JSON_OPTIONS`` it keeps them. Decimals become strings in plain notation at every depth, since a JSON reader would
round them or stumble over ``1E-8``. Spark writes NaN and infinities as strings, and binary values in base64.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from publishers.model.change import Operation
from publishers.spark.errors import SchemaRefused

__all__ = [
    "IMAGES",
    "JSON_OPTIONS",
    "KEY_SEPARATOR",
    "OPERATIONS",
    "Encoding",
    "Operations",
    "before_column",
    "body_column",
    "column_named",
    "is_text",
    "key_column",
    "type_kind",
]

JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
KEY_SEPARATOR: Final = "/"
IMAGES: Final = ("key", "body", "before")
"""The columns of what was selected that hold keys and images, and so most of the bytes."""
Operations = tuple[tuple[str, Operation], ...]
"""Words for operations, in small letters."""

OPERATIONS: Final[Operations] = (
    ("upsert", Operation.UPSERT),
    ("insert", Operation.UPSERT),
    ("update", Operation.UPSERT),
    ("remove", Operation.REMOVE),
    ("delete", Operation.REMOVE),
    ("truncate", Operation.TRUNCATE),
    ("expire", Operation.EXPIRE),
)
"""What an operation column may hold unless other words were given; in letters of any case."""

# Types whose cast to string says everything, and those that are taken from their JSON, because the cast would follow
# the time zone of the session or keep the bytes as if they were text.
_TEXTS: Final = frozenset({"string", "char", "varchar"})
_CAST: Final = _TEXTS | {"boolean", "byte", "short", "integer", "long", "date"}
_FROM_JSON: Final = frozenset({"timestamp", "timestamp_ntz", "time", "float", "double", "binary"})
_REWRITTEN: Final = _FROM_JSON | {"decimal", "date"}  # what JSON does not tell as the key of a map
_SORTED: Final = _CAST | {"timestamp", "timestamp_ntz", "decimal", "binary"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Which columns of a batch mean what.

    Attributes:
        key: Columns whose texts, joined by ``/``, are the key.
        body: Columns of the body; None for all but operation, entity type and order columns.
        operation: The operation of every row, unless ``operation_column`` is given.
        operation_column: Column that names each row's operation.
        operations: The words that it uses.
        entity_type_column: Column that names each row's entity type.
        order_by: Columns that order the rows of a batch, ascending.
        before: Column of the images before: a struct, null where there is none.
    """

    key: tuple[str, ...]
    body: tuple[str, ...] | None = None
    operation: Operation = Operation.UPSERT
    operation_column: str | None = None
    operations: Operations = OPERATIONS
    entity_type_column: str | None = None
    order_by: tuple[str, ...] = ()
    before: str | None = None

    @property
    def sized(self) -> tuple[str, ...]:
        """Those of `IMAGES` that are there."""
        return IMAGES[:2] if self.before is None else IMAGES

    @property
    def truncating(self) -> tuple[str, ...]:
        """The words for the end of all entities of a type, which has no key."""
        return tuple(name for name, meaning in self.operations if meaning is Operation.TRUNCATE)

    def check(self, schema: StructType) -> None:
        """Looks whether rows of ``schema`` can become changes.

        Raises:
            SchemaRefused: If a column is missing, or cannot be told without loss.
        """
        _refuse_twins(schema)
        singles = [name for name in (self.operation_column, self.entity_type_column) if name is not None]
        for name in (*self.key, *(self.body or ()), *self.order_by, *singles):
            _type_of(schema, name)
        for name in singles:
            if type_kind(_type_of(schema, name)) not in _TEXTS:
                raise SchemaRefused(
                    name, f"is of type {_type_of(schema, name).simpleString()}, but must be a string"
                )
        for name in self.order_by:
            if type_kind(_type_of(schema, name)) not in _SORTED:
                raise SchemaRefused(name, f"is of type {_type_of(schema, name).simpleString()}, which has no order of its own; order by whole numbers, text or times")  # fmt: skip
        if self.before is not None:
            dtype = _type_of(schema, self.before)
            if not isinstance(dtype, StructType):
                raise SchemaRefused(
                    self.before, f"is of type {dtype.simpleString()}, but the image before is a struct"
                )
            _refuse_lossy(dtype, self.before)
        for name in self.body_columns(schema):
            _refuse_lossy(_type_of(schema, name), name)
        for name in self.key:
            _check_key(_type_of(schema, name), name)

    def body_columns(self, schema: StructType) -> tuple[str, ...]:
        """The columns of the body, in the order of the batch's own unless they were named."""
        if self.body is not None:
            return self.body
        apart = {self.operation_column, self.entity_type_column, self.before, *self.order_by} - set(self.key)
        return tuple(name for name in schema.names if name not in apart)

    def told(self, schema: StructType) -> dict[str, Any]:
        """The schema of bodies as a change of the area SCHEMA tells it: Spark's own JSON, see ``publishers.lossless``."""
        told: dict[str, Any] = StructType([schema[name] for name in self.body_columns(schema)]).jsonValue()
        return told

    def columns(self, schema: StructType) -> list[Column]:
        """What a frame of the log needs of rows of ``schema``.

        The columns are ``key`` and ``body``, both text, and ``before``, ``operation``, ``entity_type`` and ``order_0,
        order_1, ...`` as far as they were asked for.
        """
        key, body = key_column(schema, self.key), body_column(schema, self.body_columns(schema))
        extra: list[Column] = []
        if self.before is not None:
            extra.append(before_column(schema, self.before).alias("before"))
        if self.operation_column is not None:
            operation = F.lower(column_named(self.operation_column).cast("string"))
            bodiless = [name for name, meaning in self.operations if meaning is not Operation.UPSERT]
            body = F.when(operation.isin(bodiless), F.lit(None).cast("string")).otherwise(body)
            key = F.when(operation.isin(list(self.truncating)), F.lit("")).otherwise(key)
            extra.append(operation.alias("operation"))
        elif self.operation is Operation.REMOVE:
            body = F.lit(None).cast("string")
        if self.entity_type_column is not None:
            extra.append(column_named(self.entity_type_column).cast("string").alias("entity_type"))
        extra.extend(column_named(name).alias(f"order_{place}") for place, name in enumerate(self.order_by))
        return [key.alias("key"), body.alias("body"), *extra]

    def select(self, frame: DataFrame, schema: StructType | None = None) -> DataFrame:
        """Turns rows into what a frame of the log needs; nothing runs yet.

        Args:
            frame: The rows.
            schema: Which of their columns count, if some were added to the batch; all if None.
        """
        return frame.select(self.columns(schema or frame.schema))


def key_column(schema: StructType, names: Sequence[str]) -> Column:
    """The key: the text of each column, several joined by ``/``; null if any of them is null.

    Where there are several, ``%`` and ``/`` inside a text become ``%25`` and ``%2F``, so that different rows cannot
    meet in one key.
    """
    texts = [_text(column_named(name), _type_of(schema, name)) for name in names]
    if len(texts) == 1:
        return texts[0]
    parts: list[Column] = []
    for name, text in zip(names, texts, strict=True):
        escaped = is_text(_type_of(schema, name))
        parts.append(_escaped(text) if escaped else text)
        parts.append(F.lit(KEY_SEPARATOR))
    return F.concat(*parts[:-1])


def _escaped(text: Column) -> Column:
    return F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))


def body_column(schema: StructType, names: Sequence[str]) -> Column:
    """The body: JSON of the named columns, without loss."""
    if not names:
        raise SchemaRefused("*", "leaves nothing for the body: name its columns with body=")
    fields = [_told(column_named(name), _type_of(schema, name)).alias(name) for name in names]
    return F.to_json(F.struct(*fields), JSON_OPTIONS)


def before_column(schema: StructType, name: str) -> Column:
    """The image before: JSON of a struct by the same rules as the body; null where that is null."""
    told = _told(column_named(name), _type_of(schema, name))
    return F.when(column_named(name).isNotNull(), F.to_json(told, JSON_OPTIONS))


def column_named(name: str) -> Column:
    """The column of that very name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def is_text(dtype: DataType) -> bool:
    """Whether values may hold any character, so that those of a key are escaped where there are several."""
    return type_kind(dtype) in _TEXTS | {"binary"}


def type_kind(dtype: DataType) -> str:
    """The name of a type without its details: ``decimal`` for ``decimal(10,2)``."""
    return dtype.typeName().partition("(")[0]


def _type_of(schema: StructType, name: str) -> DataType:
    if name not in schema.names:
        raise SchemaRefused(name, f"is not in the batch, which has {', '.join(schema.names)}")
    return schema[name].dataType


def _within(dtype: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """The type and all types in it, each with its path; those of the keys of maps left out."""
    yield path, dtype
    match dtype:
        case StructType():
            for field in dtype.fields:
                yield from _within(field.dataType, f"{path}.{field.name}" if path else field.name)
        case ArrayType():
            yield from _within(dtype.elementType, path)
        case MapType():
            yield from _within(dtype.valueType, path)
        case _:
            pass


def _refuse_twins(schema: StructType) -> None:
    """Two fields of one name would be two members of one name in a JSON object, of which readers keep one."""
    for path, inner in _within(schema, ""):
        names = inner.names if isinstance(inner, StructType) else []
        for place, name in enumerate(names):
            if name in names[:place]:
                here = f"{path}.{name}" if path else name
                raise SchemaRefused(here, "is there twice; give each field a name of its own")


def _refuse_lossy(dtype: DataType, name: str) -> None:
    for path, inner in _within(dtype, name):
        if isinstance(inner, MapType) and type_kind(inner.keyType) not in _CAST | _FROM_JSON | {"decimal"}:
            raise SchemaRefused(path, f"is a map with keys of type {inner.keyType.simpleString()}, which JSON cannot tell apart; use map_entries() to make it an array of entries")  # fmt: skip


def _check_key(dtype: DataType, name: str) -> None:
    if type_kind(dtype) not in _CAST | _FROM_JSON | {"decimal"}:
        raise SchemaRefused(name, f"is of type {dtype.simpleString()}, which has no single text; a key is made of text, numbers, dates and times")  # fmt: skip


def _text(column: Column, dtype: DataType) -> Column:
    """The value as text: exactly what it is in the body, without quotes."""
    kind = type_kind(dtype)
    if kind in _CAST:
        return column.cast("string")
    if kind == "decimal":
        return column.try_cast("string")
    return F.get_json_object(F.to_json(F.struct(column.alias("v")), JSON_OPTIONS), "$.v")


def _altered(dtype: DataType) -> bool:
    """Whether JSON of such values needs something rewritten first."""
    return any(
        isinstance(inner, DecimalType)
        or (isinstance(inner, MapType) and type_kind(inner.keyType) in _REWRITTEN)
        for _, inner in _within(dtype, "")
    )


def _told(column: Column, dtype: DataType) -> Column:
    """The value as JSON may tell it; itself if nothing in it needs to be rewritten."""
    if not _altered(dtype):
        return column
    match dtype:
        case DecimalType():
            # The cast follows spark.sql.ansi.enabled, try_cast does not: it always writes plain notation.
            return column.try_cast("string")
        case StructType():
            fields = [
                _told(column.getField(field.name), field.dataType).alias(field.name) for field in dtype.fields
            ]
            return F.when(column.isNotNull(), F.struct(*fields))
        case ArrayType():
            return F.transform(column, _each(dtype.elementType))
        case MapType():
            keys, values = dtype.keyType, dtype.valueType
            if _altered(values):
                column = F.transform_values(column, lambda _, value: _told(value, values))
            if type_kind(keys) in _REWRITTEN:
                column = F.transform_keys(column, lambda key, _: _text(key, keys))
            return column
        case _:
            return column


def _each(dtype: DataType) -> Callable[[Column], Column]:
    return lambda value: _told(value, dtype)
