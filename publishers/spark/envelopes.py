"""Debezium's envelopes: what each says, as values that fit the declared columns, or why they do not.

Debezium writes what JSON lacks by its own rules: a day as the number of days since 1970, a decimal as bytes. A topic with
``schemas.enable`` has the rule of each field in the envelope's schema; without it, such values do not fit the columns that are
declared for them. A value that PostgreSQL has not told, as it is long and was not changed, is a text of Debezium.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from publishers.lossless import Reader, encode, reader
from publishers.lossless.plain import PLAIN
from publishers.model.errors import ValueRefused

__all__ = ["EnvelopeParser", "Parsed"]

_COLUMNS: Final = ("column", "why", "lacks")
_FLAW: Final = StructType([StructField(name, StringType()) for name in _COLUMNS])
_ARROW_FLAW: Final = pa.struct([(name, pa.string()) for name in _COLUMNS])


class Flaw(NamedTuple):
    """Why a row is bad.

    Attributes:
        column: Its column.
        why: What is wrong with it.
        lacks: If values are missing and nothing else is wrong: JSON of two lists of columns, after the change and before it.
    """

    column: str
    why: str
    lacks: str | None = None


class Parsed(NamedTuple):
    """An envelope; all members are None if a value is none.

    An image is a tuple of the values of the declared columns, in their order, or the JSON of them; see `EnvelopeParser.direct`.

    Attributes:
        op: The operation.
        table: The name of the table.
        shown: The image after the change; before it, of a deletion.
        before: The image before an update or a deletion.
        flaw: Why a value does not fit its column; ``shown`` and ``before`` lack such values.
    """

    op: str | None = None
    table: str | None = None
    shown: Any = None
    before: Any = None
    flaw: Flaw | None = None


_NULL: Final = msgspec.Raw(b"null")


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class _Source(msgspec.Struct, gc=False):
    table: str | None = None


_PLACEHOLDER: Final = "__debezium_unavailable_value"
_UNAVAILABLE: Final = (_PLACEHOLDER, b64encode(_PLACEHOLDER.encode()).decode())  # of text, of bytes
_VALUE_MAX: Final = 200  # characters of a value in the text of a flaw
_DAY: Final = 86_400_000_000
_CYCLE: Final = 146_097  # days of the 400 years after which the calendar repeats itself
_2000: Final = date(2000, 1, 1)
_TO_2000: Final = (_2000 - date(1970, 1, 1)).days
_DIRECT: Final = (
    ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BooleanType(), BinaryType(),
)  # fmt: skip
_WHOLE: Final = ("byte", "short", "integer", "long")
_UNREAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_TEXTS: Final = ("string", "binary")  # types of which a placeholder may be a value
_wrapped: Final = msgspec.json.Decoder(_Wrapped)
_exact: Final = msgspec.json.Decoder(float_hook=Decimal)
_numbers: Final = msgspec.json.Encoder(decimal_format="number")

Decode = Callable[[Any], Any]


class EnvelopeParser:
    """Parses envelopes; can be pickled.

    Attributes:
        direct: Whether images are given to Spark as columns. If a column has a type of which Python cannot represent all values, such
            as the years behind 9999, images are the JSON of their values.

    Args:
        image: The columns of the table.

    Raises:
        ValueError: If a type is unknown.
    """

    def __init__(self, image: StructType) -> None:
        self._image = image
        self._types: dict[str, Any] = {field["name"]: field["type"] for field in image.jsonValue()["fields"]}
        self.direct: bool = 0 < len(self._types) == len(image.fields) and all(
            _is_direct(field.dataType) for field in image.fields
        )
        self._reads: dict[str, Reader] = {
            name: reader(kind, {} if self.direct else _LEAVES) for name, kind in self._types.items()
        }
        self._whole = _WholeImages(self._types, self._reads) if self.direct else None
        fields = [StructField(field.name, field.dataType, metadata=field.metadata) for field in image.fields]
        self._fields = (
            [pa.field(one.name, to_arrow_type(one.dataType)) for one in fields] if self.direct else []
        )
        shown = StructType(fields) if self.direct else StringType()
        self.parsed: StructType = (
            StructType()
            .add("op", StringType())
            .add("table", StringType())
            .add("shown", shown)
            .add("before", shown)
            .add("flaw", _FLAW)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvelopeParser, (self._image,)

    def columns(self, values: pa.Array) -> pa.Array:
        """Returns what values of the topic say: a struct with the members of `Parsed` for each."""
        rows = [*map(self._row, values.to_pylist())]
        ops, tables, shown, before, flaws = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        told = [None if flaw is None else flaw._asdict() for flaw in flaws]
        parts = [
            pa.array(ops, pa.string()),
            pa.array(tables, pa.string()),
            self._images(shown),
            self._images(before),
            pa.array(told, _ARROW_FLAW),
        ]
        return pa.StructArray.from_arrays(parts, Parsed._fields)

    def _images(self, images: Sequence[Any]) -> pa.Array:
        if not self.direct:
            return pa.array(images, pa.string())
        mask = [image is None for image in images]
        if all(mask):
            return pa.nulls(len(images), pa.struct(self._fields))
        blank = (None,) * len(self._fields)
        columns = zip(*(image or blank for image in images), strict=True)
        parts = [pa.array(one, field.type) for one, field in zip(columns, self._fields, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=self._fields, mask=pa.array(mask))

    def __call__(self, value: bytes | None) -> Parsed:
        """Returns what a value of the topic says."""
        return Parsed(*self._row(value))

    def _row(self, value: bytes | None) -> tuple[Any, ...]:
        return (self._whole is not None and value and self._whole.row(value)) or self.of_any(value)

    def of_any(self, value: bytes | None) -> Parsed:
        """Returns what an envelope says, value by value."""
        try:
            wrapped = _wrapped.decode(value or b"")
            inner = bytes(wrapped.payload).lstrip()
            envelope = _exact.decode(inner if inner.startswith(b"{") else value or b"")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return Parsed()
        decoders = _decoders(bytes(wrapped.schema))
        op, source = envelope.get("op"), envelope.get("source")
        table = source.get("table") if isinstance(source, dict) else None
        flaws: list[Flaw] = []
        lacks: dict[str, list[str]] = {"after": [], "before": []}
        before = self._known(envelope, "before", {}, decoders, flaws, lacks) if op in ("u", "d") else None
        known = envelope.get("before")
        known = known if isinstance(known, dict) else {}
        shown = before if op == "d" else self._known(envelope, "after", known, decoders, flaws, lacks)
        if flaws and len(flaws) == sum(map(len, lacks.values())):
            flaws[0] = flaws[0]._replace(lacks=encode([*lacks.values()]).decode())
        return Parsed(
            op if isinstance(op, str) else None,
            table if isinstance(table, str) else None,
            shown,
            before,
            flaws[0] if flaws else None,
        )

    def _known(
        self,
        envelope: Mapping[str, Any],
        image: str,
        earlier: Mapping[str, Any],
        decoders: Mapping[str, Mapping[str, Decode]],
        flaws: list[Flaw],
        lacks: Mapping[str, list[str]],
    ) -> Any:
        """Returns an image; adds the values that do not fit to ``flaws``, and the columns without a value to ``lacks``."""
        members = envelope.get(image)
        if not isinstance(members, dict):
            return None
        found: dict[str, Any] = {}
        for name, read in self._reads.items():
            if name not in members:
                continue
            value, decode = members[name], decoders.get(image, {}).get(name)
            if _is_unavailable(value):
                value = earlier.get(name, value)
                if _is_unavailable(value):
                    lacks[image].append(name)
                    flaws.append(Flaw(name, f"is unavailable in {image}: the database has not told its value, as it was not changed; REPLICA IDENTITY FULL makes PostgreSQL tell it"))  # fmt: skip
                    continue
                decode = decoders.get("before", {}).get(name)
            try:
                found[name] = read(value if decode is None else _decoded(decode, value, self._types[name]))
            except ValueRefused as error:
                flaws.append(Flaw(error.within(name).column, _why(error, image)))
        return tuple(map(found.get, self._reads)) if self.direct else encode(found).decode()


class _WholeImages:
    """Reads envelopes with all of their columns at once, if each value is as its column says: most are.

    Args:
        types: The types of the columns.
        reads: What reads values of each column.
    """

    def __init__(self, types: Mapping[str, Any], reads: Mapping[str, Reader]) -> None:
        self._types = types
        self._plain = [kind in PLAIN for kind in types.values()]
        self._texts = [place for place, kind in enumerate(types.values()) if kind in _TEXTS]
        columns = [(f"c{at}", PLAIN.get(kind, Any), None) for at, kind in enumerate(types.values())]
        columns = [(name, kind if kind is Any else kind | None, None) for name, kind, _ in columns]
        names = {f"c{at}": name for at, name in enumerate(types)}
        image: Any = msgspec.defstruct("Image", columns, rename=names, gc=False)
        images = [(name, image | None, None) for name in ("before", "after")]
        members = [("op", str | None, None), ("source", _Source | None, None), *images]
        envelope: Any = msgspec.defstruct("Envelope", members, gc=False)
        more = [("schema", msgspec.Raw, _NULL), ("payload", envelope | None, None)]
        wrapped = msgspec.defstruct("Wrapped", more, bases=(envelope,), gc=False)
        self._decode = msgspec.json.Decoder(wrapped, float_hook=Decimal).decode
        self._reads = [(place, read) for place, read in enumerate(reads.values()) if not self._plain[place]]
        self._schema: bytes = b"null"  # the last one: every message of a table repeats the same
        self._odd = False  # whether it changes the values of plain columns
        self._logical: dict[str, dict[int, Reader]] = {}

    def row(self, value: bytes) -> tuple[Any, ...] | None:
        """Returns the members of `Parsed`; None for an envelope that has to be looked at value by value."""
        try:
            envelope: Any = self._decode(value)
            schema = bytes(envelope.schema)
            if schema != self._schema:
                self._look_at(schema)
            if self._odd:
                return None
            envelope = envelope.payload or envelope
            op, before = envelope.op, None
            if envelope.before is not None and op in ("u", "d"):
                before = self._values(envelope.before, "before")
            shown = before if op == "d" else None if envelope.after is None else self._values(envelope.after, "after")  # fmt: skip
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return op, None if envelope.source is None else envelope.source.table, shown, before, None

    def _values(self, image: Any, name: str) -> tuple[Any, ...]:
        values = msgspec.structs.astuple(image)
        for place in self._texts:
            if values[place] in _UNAVAILABLE:
                raise ValueError
        if self._reads:
            found, logical = [*values], self._logical.get(name, {})
            for place, read in self._reads:
                found[place] = logical.get(place, read)(found[place])
            values = tuple(found)
        return values

    def _look_at(self, schema: bytes) -> None:
        """Notes how an envelope's schema says that values of its columns are written."""
        self._schema, self._odd, self._logical = schema, False, {}
        for image, decoders in _decoders(schema).items():
            for place, (name, kind) in enumerate(self._types.items()):
                if (decode := decoders.get(name)) is None:
                    continue
                if self._plain[place]:
                    self._odd |= kind not in _WHOLE  # of which all values are as they were written
                else:
                    self._logical.setdefault(image, {})[place] = _decoding(
                        decode, kind, dict(self._reads)[place]
                    )


def _why(error: ValueRefused, image: str) -> str:
    text = _numbers.encode(error.value).decode()
    return f"is {text:.{_VALUE_MAX}} in {image}, which cannot be read as {error.kind} without changing it"


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value in _UNAVAILABLE if isinstance(value, str) else False


def _decoded(decode: Decode, value: Any, kind: Any) -> Any:
    """Returns a value in the form of `publishers.lossless`; unchanged if the column is declared as what stands in the envelope."""
    as_written = _WHOLE if isinstance(value, int) else ("binary",)
    if value is None or not isinstance(kind, str) or kind in as_written:
        return value
    try:
        found = decode(value)
    except (ValueError, TypeError, KeyError, ArithmeticError):
        return value  # refused by the type of its column
    # Without a time zone, the database's clock is taken for UTC, as Debezium does when it counts.
    return f"{found}Z" if kind == "timestamp" and isinstance(value, int) else found


def _decoding(decode: Decode, kind: Any, read: Reader) -> Reader:
    return lambda value: read(_decoded(decode, value, kind))


def _is_direct(kind: DataType) -> bool:
    return kind in _DIRECT or isinstance(kind, DecimalType)


@lru_cache(16)  # every message of a table repeats the same schema
def _decoders(schema: bytes) -> Mapping[str, Mapping[str, Decode]]:
    """Returns what decodes the fields of each image, by the schema of an envelope."""
    try:
        described = msgspec.json.decode(schema)
        images = {one["field"]: one.get("fields", ()) for one in described["fields"]}
        return {
            image: {
                one["field"]: made
                for one in fields
                if (made := _decoder(one.get("name"), one.get("parameters") or {})) is not None
            }
            for image, fields in images.items()
        }
    except (msgspec.MsgspecError, TypeError, KeyError, AttributeError, ValueError):
        return {}


def _decoder(name: Any, parameters: Mapping[str, str]) -> Decode | None:
    if name == "org.apache.kafka.connect.data.Decimal":
        scale = int(parameters.get("scale", 0))
        return lambda value: _decimal(value, scale)
    return _LOGICAL.get(name)


def _decimal(text: str, scale: int) -> Decimal:
    number = int.from_bytes(b64decode(text, validate=True), "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _time(unit: int) -> Decode:
    """Returns what decodes a time of the day; ``unit`` is the number of its units in a second."""

    def decode(value: int) -> str:
        day, text = _clock(value, unit)
        if day:
            raise ValueError(value)
        return text

    return decode


def _moment(unit: int) -> Decode:
    def decode(value: int) -> str:
        day, text = _clock(value, unit)
        return f"{_day(day)}T{text}"

    return decode


def _clock(value: int, unit: int) -> tuple[int, str]:
    """Returns the day since 1970 and the time in it."""
    micros, finer = divmod(value * 1_000_000, unit)
    if finer:
        raise ValueError(value)  # no type of Spark has nanoseconds
    day, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    return day, f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _day(value: int) -> str:
    cycles, days = divmod(value - _TO_2000, _CYCLE)
    found = _2000 + timedelta(days=days)
    year = found.year + 400 * cycles
    return f"{year:04}-{found:%m-%d}" if 0 <= year <= 9999 else f"{year:+05}-{found:%m-%d}"


_LOGICAL: Final[Mapping[Any, Decode]] = {
    "io.debezium.data.VariableScaleDecimal": lambda value: _decimal(value["value"], value["scale"]),
    "io.debezium.time.Date": _day,
    "org.apache.kafka.connect.data.Date": _day,
    "io.debezium.time.Time": _time(1_000),
    "org.apache.kafka.connect.data.Time": _time(1_000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.NanoTime": _time(1_000_000_000),
    "io.debezium.time.Timestamp": _moment(1_000),
    "org.apache.kafka.connect.data.Timestamp": _moment(1_000),
    "io.debezium.time.MicroTimestamp": _moment(1_000_000),
    "io.debezium.time.NanoTimestamp": _moment(1_000_000_000),
}
"""By the name of a field's schema: what makes of its value the text, or the number, that `publishers.lossless` knows."""


_LEAVES: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("float", "double"), lambda value: value if isfinite(value) else _UNREAL[str(value)]),
    "variant": lambda value: msgspec.Raw(_numbers.encode(value)),
}
"""What is written for numbers that JSON lacks, and for values of any type."""
