"""The encoding of rows: which columns become key and body, and the JVM expressions that encode them without loss.

The body is JSON of a row's columns. By default, Spark's JSON drops nulls and everything below a millisecond; with
``JSON_OPTIONS`` it keeps both. Decimals become strings in plain notation at every depth, since a JSON reader would round
them or reject ``1E-8``. Spark writes NaN and infinities as strings, and binary values in base64.
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
    "key_parts",
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
"""The selected columns with keys and images; they hold most of the bytes."""
Operations = tuple[tuple[str, Operation], ...]
"""Pairs of a word in lower case and its operation."""

OPERATIONS: Final[Operations] = (
    ("upsert", Operation.UPSERT),
    ("insert", Operation.UPSERT),
    ("update", Operation.UPSERT),
    ("remove", Operation.REMOVE),
    ("delete", Operation.REMOVE),
    ("truncate", Operation.TRUNCATE),
    ("expire", Operation.EXPIRE),
)
"""The default words of an operation column; their case does not matter."""

# _CAST: types whose cast to string loses nothing. _FROM_JSON: types whose text comes from their JSON, because the cast would
# depend on the session's time zone, or keep bytes as if they were text.
_FLAW: Final = "struct<column:string,why:string>"
_LACKING: Final = "struct<column:string,why:string,lacks:string>"  # with what `UntoldValues` may fill in
_TEXTS: Final = frozenset({"string", "char", "varchar"})
_CAST: Final = _TEXTS | {"boolean", "byte", "short", "integer", "long", "date"}
_FROM_JSON: Final = frozenset({"timestamp", "timestamp_ntz", "time", "float", "double", "binary"})
_REWRITTEN: Final = _FROM_JSON | {"decimal", "date"}  # map keys that JSON would not encode as values
_SORTED: Final = _CAST | {"timestamp", "timestamp_ntz", "decimal", "binary"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The meaning of a batch's columns.

    Attributes:
        key: Columns whose texts, joined by ``/``, are the key.
        body: Columns of the body; None for all but operation, entity type and order columns.
        operation: The operation of every row, unless ``operation_column`` is given.
        operation_column: Column that names each row's operation.
        operations: The words of that column.
        entity_type_column: Column that names each row's entity type.
        order_by: Columns that order the rows of a batch, ascending.
        before: Column of the before images: a struct, null if a row has none.
        flaw_column: Column that says why a row is bad: a struct of ``column`` and ``why``, null for a good row.
    """

    key: tuple[str, ...]
    body: tuple[str, ...] | None = None
    operation: Operation = Operation.UPSERT
    operation_column: str | None = None
    operations: Operations = OPERATIONS
    entity_type_column: str | None = None
    order_by: tuple[str, ...] = ()
    before: str | None = None
    flaw_column: str | None = None

    @property
    def sized(self) -> tuple[str, ...]:
        """The columns of `IMAGES` that this encoding selects."""
        return IMAGES[:2] if self.before is None else IMAGES

    @property
    def truncating(self) -> tuple[str, ...]:
        """The words for TRUNCATE, whose rows need no key."""
        return tuple(name for name, meaning in self.operations if meaning is Operation.TRUNCATE)

    def check(self, schema: StructType) -> None:
        """Checks that rows of ``schema`` can become changes.

        Raises:
            SchemaRefused: If a column is missing, of the wrong type, occurs twice, or cannot be encoded without loss.
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
        if self.flaw_column is not None and _type_of(schema, self.flaw_column).simpleString() not in (
            _FLAW,
            _LACKING,
        ):
            raise SchemaRefused(self.flaw_column, f"is of type {_type_of(schema, self.flaw_column).simpleString()}, but must be {_FLAW}")  # fmt: skip
        for name in self.body_columns(schema):
            _refuse_lossy(_type_of(schema, name), name)
        for name in self.key:
            _check_key(_type_of(schema, name), name)

    def body_columns(self, schema: StructType) -> tuple[str, ...]:
        """Returns the columns of the body: in the order of ``body`` if given, else in the order of the batch."""
        if self.body is not None:
            return self.body
        apart = {
            self.operation_column,
            self.entity_type_column,
            self.before,
            self.flaw_column,
            *self.order_by,
        } - set(self.key)
        return tuple(name for name in schema.names if name not in apart)

    def told(self, schema: StructType) -> dict[str, Any]:
        """Returns the schema of bodies for a SCHEMA change, in Spark's JSON of types; see ``publishers.lossless``."""
        body: dict[str, Any] = StructType([schema[name] for name in self.body_columns(schema)]).jsonValue()
        return body

    def columns(self, schema: StructType) -> list[Column]:
        """Returns the expressions that encode rows of ``schema`` for a frame of the log.

        The columns are ``key`` and ``body``, both text, and, if the encoding has them, ``before``, ``operation``,
        ``entity_type``, ``flawed`` (the column), ``flaw`` (what is wrong) and ``lacks``, and ``order_0, order_1, ...``.
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
        if self.flaw_column is not None:
            flaw = column_named(self.flaw_column)
            extra.append(flaw.getField("column").alias("flawed"))
            extra.append(flaw.getField("why").alias("flaw"))
            if _type_of(schema, self.flaw_column).simpleString() == _LACKING:
                extra.append(flaw.getField("lacks").alias("lacks"))
        extra.extend(column_named(name).alias(f"order_{place}") for place, name in enumerate(self.order_by))
        return [key.alias("key"), body.alias("body"), *extra]

    def select(self, frame: DataFrame, schema: StructType | None = None) -> DataFrame:
        """Encodes rows for a frame of the log; lazy, starts no job.

        Args:
            frame: The rows.
            schema: The schema of the batch, if ``frame`` has further, added columns; None for all columns of ``frame``.
        """
        return frame.select(self.columns(schema or frame.schema))


def key_column(schema: StructType, names: Sequence[str]) -> Column:
    """Returns the key: the texts of the columns, joined by ``/``; null if a column is null.

    With several columns, ``%`` and ``/`` inside a text become ``%25`` and ``%2F``, so that different rows never share a
    key.
    """
    texts = [_text_column(column_named(name), _type_of(schema, name)) for name in names]
    if len(texts) == 1:
        return texts[0]
    parts: list[Column] = []
    for name, text in zip(names, texts, strict=True):
        escaped = is_text(_type_of(schema, name))
        parts.append(_escaped(text) if escaped else text)
        parts.append(F.lit(KEY_SEPARATOR))
    return F.concat(*parts[:-1])


def key_parts(schema: StructType, names: Sequence[str], key: Column) -> list[Column]:
    """Returns the columns that a key was made of; null for a part whose type cannot have its text."""
    texts = (
        [key]
        if len(names) == 1
        else [F.get(F.split(key, KEY_SEPARATOR), place) for place in range(len(names))]
    )
    parts = []
    for name, text in zip(names, texts, strict=True):
        dtype = _type_of(schema, name)
        if len(names) > 1 and is_text(dtype):
            text = F.replace(F.replace(text, F.lit("%2F"), F.lit("/")), F.lit("%25"), F.lit("%"))  # noqa: PLW2901 - the same text
        parts.append(F.unbase64(text) if type_kind(dtype) == "binary" else text.try_cast(dtype))
    return parts


def _escaped(text: Column) -> Column:
    return F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))


def body_column(schema: StructType, names: Sequence[str]) -> Column:
    """Returns the body: JSON of the named columns, without loss."""
    if not names:
        raise SchemaRefused("*", "leaves nothing for the body: name its columns with body=")
    fields = [_json_form(column_named(name), _type_of(schema, name)).alias(name) for name in names]
    return F.to_json(F.struct(*fields), JSON_OPTIONS)


def before_column(schema: StructType, name: str) -> Column:
    """Returns the before image: JSON of a struct, by the rules of the body; null if the struct is null."""
    body = _json_form(column_named(name), _type_of(schema, name))
    return F.when(column_named(name).isNotNull(), F.to_json(body, JSON_OPTIONS))


def column_named(name: str) -> Column:
    """Returns the column with exactly this name, whatever characters the name has."""
    return F.col(f"`{name.replace('`', '``')}`")


def is_text(dtype: DataType) -> bool:
    """Returns whether values may hold any character and thus need escaping in a key of several columns."""
    return type_kind(dtype) in _TEXTS | {"binary"}


def type_kind(dtype: DataType) -> str:
    """Returns the name of a type without parameters: ``decimal`` for ``decimal(10,2)``."""
    return dtype.typeName().partition("(")[0]


def _type_of(schema: StructType, name: str) -> DataType:
    if name not in schema.names:
        raise SchemaRefused(name, f"is not in the batch, which has {', '.join(schema.names)}")
    return schema[name].dataType


def _within(dtype: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """Yields the type and all types nested in it, each with its path; omits the key types of maps."""
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
    """Refuses two fields with one name: JSON readers keep only one of two members with the same name."""
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


def _text_column(column: Column, dtype: DataType) -> Column:
    """Returns the value as text: the same text as in the body, without quotes."""
    kind = type_kind(dtype)
    if kind in _CAST:
        return column.cast("string")
    if kind == "decimal":
        return column.try_cast("string")
    return F.get_json_object(F.to_json(F.struct(column.alias("v")), JSON_OPTIONS), "$.v")


def _altered(dtype: DataType) -> bool:
    """Returns whether values of the type must be rewritten before Spark encodes them as JSON."""
    return any(
        isinstance(inner, DecimalType)
        or (isinstance(inner, MapType) and type_kind(inner.keyType) in _REWRITTEN)
        for _, inner in _within(dtype, "")
    )


def _json_form(column: Column, dtype: DataType) -> Column:
    """Returns the value rewritten for JSON; the value itself if nothing in it needs rewriting."""
    if not _altered(dtype):
        return column
    match dtype:
        case DecimalType():
            # cast depends on spark.sql.ansi.enabled; try_cast always writes plain notation.
            return column.try_cast("string")
        case StructType():
            fields = [
                _json_form(column.getField(field.name), field.dataType).alias(field.name)
                for field in dtype.fields
            ]
            return F.when(column.isNotNull(), F.struct(*fields))
        case ArrayType():
            return F.transform(column, _each(dtype.elementType))
        case MapType():
            keys, values = dtype.keyType, dtype.valueType
            if _altered(values):
                column = F.transform_values(column, lambda _, value: _json_form(value, values))
            if type_kind(keys) in _REWRITTEN:
                column = F.transform_keys(column, lambda key, _: _text_column(key, keys))
            return column
        case _:
            return column


def _each(dtype: DataType) -> Callable[[Column], Column]:
    return lambda value: _json_form(value, dtype)
