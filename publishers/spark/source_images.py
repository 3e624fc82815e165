"""Parses JSON images into typed columns: with Arrow's parser if it gives the same result as ours, else with ours."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from publishers.lossless import reader
from publishers.spark.errors import SchemaRefused, ValueRefused

__all__ = ["EntityImages"]

_AS_PARSED: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long"})
_BY_ARROW: Final = _AS_PARSED | {"double"}
_FROM_TEXT: Final = frozenset({"decimal", "date", "timestamp"})


class EntityImages:
    """Parses JSON images into the columns of an entity.

    Args:
        entity: The columns.

    Raises:
        SchemaRefused: If Arrow lacks a type.
    """

    def __init__(self, entity: StructType) -> None:
        try:
            self._schema: pa.Schema = to_arrow_schema(entity, timezone="UTC")
        except PySparkException as error:
            raise SchemaRefused("*", f"has a type that Arrow lacks ({error})") from None
        self._names = entity.names
        self._struct = pa.struct(self._schema)
        found = {field.name: _reading(field.dataType) for field in entity}
        self._reads = {name: read for name, read in found.items() if read is not None}
        self._parsing = _parsing(entity, self._schema)

    def read(self, images: pa.Array, versions: pa.Array, indices: pa.Array) -> dict[str, pa.Array]:
        """Returns the columns by name; a value is null if the row has no image, or the image lacks the member.

        Args:
            images: JSON of each row, or null.
            versions: Version of each row, for the error.
            indices: Index of each row in its version, for the error.

        Raises:
            ValueRefused: If an image does not match the types.
        """
        if not self._names:
            return {}
        columns = self._by_arrow(images)
        if columns is None:
            texts = images.cast(pa.binary()).to_pylist()

            def refused(row: int, error: Exception) -> ValueRefused:
                return ValueRefused(versions[row].as_py(), indices[row].as_py(), error)

            columns = self._exactly(texts, 0, refused).flatten()
        return dict(zip(self._names, columns, strict=True))

    def _by_arrow(self, images: pa.Array) -> list[pa.Array] | None:
        """Parses with Arrow, several times as fast; returns None if a type or a value is unsuitable for Arrow's parser."""
        if self._parsing is None:
            return None
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(images)], pc.fill_null(images, "{}")), "\n")
        try:
            text = lines[0].as_buffer()
            table = pa.json.read_json(
                pa.BufferReader(text),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=self._parsing,
            )
            if table.num_rows != len(images):
                return None
            return [_one(table.column(field.name)).cast(field.type) for field in self._schema]
        except pa.ArrowException:
            return None

    def _exactly(
        self, texts: list[bytes | None], first: int, refused: Callable[[int, Exception], ValueRefused]
    ) -> pa.Array:
        """Parses all images as one JSON text into an array of structs; on an error, bisects to find the faulty image."""
        try:
            parsed = msgspec.json.decode(
                b"[%b]" % b",".join(b"null" if one is None else one for one in texts)
            )
            if len(parsed) != len(texts):
                raise ValueError("it is no JSON")
            return pa.array([self._converted(image) for image in parsed], self._struct)
        except (ValueError, TypeError, ArithmeticError, AttributeError, msgspec.MsgspecError) as error:
            if len(texts) == 1:
                raise refused(first, error) from None
            half = len(texts) // 2
            halves = (
                self._exactly(texts[:half], first, refused),
                self._exactly(texts[half:], first + half, refused),
            )
            return pa.concat_arrays(halves)

    def _converted(self, image: dict[str, Any] | None) -> dict[str, Any] | None:
        if image is not None:
            for name, read in self._reads.items():
                if image.get(name) is not None:
                    image[name] = read(image[name])
        return image


def _reading(dtype: DataType) -> Callable[[Any], Any] | None:
    """Returns the function that converts a parsed value; None if the value needs no conversion."""
    kind = dtype.jsonValue()
    return None if isinstance(kind, str) and kind in _AS_PARSED else reader(kind)


def _parsing(entity: StructType, schema: pa.Schema) -> Any:
    """Returns the options of Arrow's parser; None if it lacks a type, or accepts another form of it.

    Decimals and times are read as text and cast, because the parser would also accept numbers for them.
    """
    kinds = [field.dataType.typeName().partition("(")[0] for field in entity]
    if not _BY_ARROW.union(_FROM_TEXT).issuperset(kinds):
        return None
    fields = [
        pa.field(field.name, pa.string()) if kind in _FROM_TEXT else field
        for field, kind in zip(schema, kinds, strict=True)
    ]
    return pa.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)
