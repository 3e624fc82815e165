"""Parses JSON images into typed columns: with Arrow's parser if it gives the same result as ours, else with ours."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from publishers import lossless
from publishers.errors import ValueRefused
from publishers.lossless import Reader, reader
from publishers.lossless.plain import plain_type
from publishers.spark.errors import SchemaRefused
from publishers.spark.schema import type_kind

__all__ = ["EntityImages"]

_BY_ARROW: Final = frozenset({"string", "boolean", "byte", "short", "integer", "long", "double"})
_FROM_TEXT: Final = frozenset({"decimal", "date", "timestamp"})
_ROUNDED: Final = 2.0**53  # from here on Arrow's parser rounds whole numbers to a double without a word
_DECIMAL: Final = f"^(?:{lossless.NUMBER})$"
_exact: Final = msgspec.json.Decoder(float_hook=Decimal)
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


class EntityImages:
    """Parses JSON images into the columns of an entity.

    Args:
        entity: The columns.
        written: The schema that the images were written with, in Spark's JSON of types; None if it is unknown, or if none of
            its columns is `mistakable`.

    Raises:
        SchemaRefused: If Arrow lacks a type.
    """

    def __init__(self, entity: StructType, written: Any = None) -> None:
        try:
            self._schema: pa.Schema = to_arrow_schema(entity, timezone="UTC")
        except PySparkException as error:
            raise SchemaRefused("*", f"has a type that Arrow lacks ({error})") from None
        self._names = entity.names
        self._struct = pa.struct(self._schema)
        self._read = reader(entity.jsonValue(), _LEAVES, written)
        self._parsing = None if written is not None else _parsing(entity, self._schema)
        several = {"type": "array", "elementType": entity.jsonValue()}
        plain = None if written is not None else plain_type(several, _LEAVES)
        self._plain = None if plain is None else (msgspec.json.Decoder(plain.type).decode, plain.read)

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
                image, place = texts[row], (versions[row].as_py(), indices[row].as_py())
                if isinstance(error, ValueRefused):
                    error = self._refusal(image) or error  # with Python's numbers, which people know
                    return ValueRefused(error.column, error.value, error.kind, *place)
                return ValueRefused("", image, "struct", *place)

            found = self._plainly(texts)
            columns = (self._exactly(texts, 0, refused) if found is None else found).flatten()
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
            columns = [_one(table.column(field.name)) for field in self._schema]
            if any(
                _is_doubtful(column, field.type) for column, field in zip(columns, self._schema, strict=True)
            ):
                return None
            return [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        except pa.ArrowException:
            return None

    def _plainly(self, texts: list[bytes | None]) -> pa.Array | None:
        """Parses with types of msgspec; returns None if one is missing, or refuses a value."""
        if self._plain is None:
            return None
        decode, read = self._plain
        try:
            parsed = decode(_joined(texts))
            if len(parsed) != len(texts):
                return None
            return pa.array(parsed if read is None else read(parsed), self._struct)
        except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
            return None

    def _refusal(self, image: bytes | None) -> ValueRefused | None:
        try:
            self._read(msgspec.json.decode(image or b"null"))
        except ValueRefused as error:
            return error
        return None

    def _exactly(
        self, texts: list[bytes | None], first: int, refused: Callable[[int, Exception], ValueRefused]
    ) -> pa.Array:
        """Parses all images as one JSON text into an array of structs; on an error, bisects to find the faulty image."""
        try:
            parsed = _exact.decode(_joined(texts))
            if len(parsed) != len(texts):
                raise ValueError("it is no JSON")
            return pa.array([self._read(image) for image in parsed], self._struct)
        except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError) as error:
            if len(texts) == 1:
                raise refused(first, error) from None
            half = len(texts) // 2
            halves = (
                self._exactly(texts[:half], first, refused),
                self._exactly(texts[half:], first + half, refused),
            )
            return pa.concat_arrays(halves)


def _joined(texts: list[bytes | None]) -> bytes:
    return b"[%b]" % b",".join(b"null" if one is None else one for one in texts)


def _is_doubtful(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether Arrow may read values in another way than `lossless.reader`: it rounds whole numbers, and knows more forms of decimals."""
    if pa.types.is_float64(kind):
        bounds = pc.min_max(column).as_py()
        return bounds["max"] is not None and not -_ROUNDED < bounds["min"] <= bounds["max"] < _ROUNDED
    if pa.types.is_decimal(kind):
        return pc.all(pc.match_substring_regex(column, _DECIMAL)).as_py() is False
    return False


def _variant(value: Any) -> dict[str, bytes]:
    made = VariantVal.parseJson(_encoder.encode(value).decode())
    return {"value": made.value, "metadata": made.metadata}


def _since_1970(found: date | str) -> date | int:
    """Returns a time that Python cannot represent as Arrow holds it: in days, or in microseconds."""
    if not isinstance(found, str):
        return found
    # The calendar repeats itself every 400 years.
    year, rest = _YEAR.fullmatch(found).groups()  # type: ignore[union-attr] # `lossless.reader` has read it
    cycles, year = divmod(int(year), 400)
    days = (cycles - 5) * _CYCLE_DAYS
    near = f"{2000 + year}{rest}"
    if len(near) == len("2000-01-01"):
        return days + (date.fromisoformat(near) - _EPOCH.date()).days
    moment = datetime.fromisoformat(near)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    micros = (moment - _EPOCH + timedelta(days=days)) // timedelta(microseconds=1)
    if abs(micros) >= 2**63:
        raise ValueError(found)
    return micros


_YEAR: Final = re.compile(r"([+-]?\d+)(-.*)")
_CYCLE_DAYS: Final = 146_097
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAVES: Final[Mapping[str, Reader]] = {
    "variant": _variant,
    "date": _since_1970,
    "timestamp": _since_1970,
    "timestamp_ntz": _since_1970,
}


def _parsing(entity: StructType, schema: pa.Schema) -> Any:
    """Returns the options of Arrow's parser; None if it lacks a type, or accepts another form of it.

    Decimals and times are read as text and cast, because the parser would also accept numbers for them.
    """
    kinds = [type_kind(field.dataType) for field in entity]
    if not _BY_ARROW.union(_FROM_TEXT).issuperset(kinds):
        return None
    fields = [
        pa.field(field.name, pa.string()) if kind in _FROM_TEXT else field
        for field, kind in zip(schema, kinds, strict=True)
    ]
    return pa.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)
