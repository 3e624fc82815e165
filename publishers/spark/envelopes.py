"""Debezium's envelopes: what each says, as JSON whose values fit the declared columns, or why they do not.

Debezium writes what JSON lacks by its own rules: a day as the number of days since 1970, a decimal as bytes. A topic with
``schemas.enable`` has the rule of each field in the envelope's schema; without it, such values do not fit the columns that are
declared for them. A value that PostgreSQL has not told, as it is long and was not changed, is a text of Debezium.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pyspark.sql.types import StringType, StructField, StructType

from publishers.lossless import Reader, encode, reader
from publishers.model.errors import ValueRefused

__all__ = ["PARSED", "EnvelopeParser", "Parsed"]

PARSED: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("op", "table", "shown", "before")),
        StructField(
            "flaw", StructType([StructField(name, StringType()) for name in ("column", "why", "lacks")])
        ),
    ]
)
"""The type of `Parsed` in Spark."""


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

    Attributes:
        op: The operation.
        table: The name of the table.
        shown: JSON of the declared columns after the change; before it, of a deletion.
        before: JSON of the declared columns before an update or a deletion.
        flaw: Why a value does not fit its column; ``shown`` and ``before`` lack such values.
    """

    op: str | None = None
    table: str | None = None
    shown: str | None = None
    before: str | None = None
    flaw: Flaw | None = None


_NULL: Final = msgspec.Raw(b"null")


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class _Source(msgspec.Struct):
    table: str | None = None


class _Envelope(_Wrapped):
    """An envelope, or what wraps one; its images are decoded by the types of their columns."""

    op: str | None = None
    source: _Source | None = None
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL


_PLACEHOLDER: Final = "__debezium_unavailable_value"
_UNAVAILABLE: Final = (_PLACEHOLDER, b64encode(_PLACEHOLDER.encode()).decode())  # of text, of bytes
_VALUE_MAX: Final = 200  # characters of a value in the text of a flaw
_DAY: Final = 86_400_000_000
_CYCLE: Final = 146_097  # days of the 400 years after which the calendar repeats itself
_2000: Final = date(2000, 1, 1)
_TO_2000: Final = (_2000 - date(1970, 1, 1)).days
_WHOLE: Final = ("byte", "short", "integer", "long")
_UNREAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PLAIN: Final[Mapping[str, Any]] = {
    **{
        name: Annotated[int, msgspec.Meta(ge=-(1 << bits), lt=1 << bits)]
        for name, bits in (("byte", 7), ("short", 15), ("integer", 31))
    },
    "long": Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    "double": Annotated[
        float, msgspec.Meta(gt=-float(1 << 53), lt=float(1 << 53))
    ],  # a whole number beyond may not fit
    "string": str,
    "boolean": bool,
}
"""Types whose values Spark and msgspec read alike from the text of an envelope."""
_PLAIN_BYTES: Final = 1000  # Spark's parser of JSON refuses no number, and no nesting, of so short a text
_TEXT, _BYTES, _ESCAPED = (
    b"debezium_unavailable",
    b"X19kZWJleml1bV91",
    b"\\u00",
)  # each may be in a placeholder's text
_wrapped: Final = msgspec.json.Decoder(_Wrapped)
_envelope: Final = msgspec.json.Decoder(_Envelope)
_exact: Final = msgspec.json.Decoder(float_hook=Decimal)
_numbers: Final = msgspec.json.Encoder(decimal_format="number")

Decode = Callable[[Any], Any]


class EnvelopeParser:
    """Parses envelopes; can be pickled.

    Args:
        image: The columns of the table, in Spark's JSON of types.

    Raises:
        ValueError: If a type is unknown.
    """

    def __init__(self, image: Mapping[str, Any]) -> None:
        self._image = image
        self._reads: dict[str, Reader] = {
            field["name"]: reader(field["type"], _LEAVES) for field in image["fields"]
        }
        self._types: dict[str, Any] = {field["name"]: field["type"] for field in image["fields"]}
        self._plain = _plain_decoder(self._types)

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvelopeParser, (self._image,)

    def __call__(self, value: bytes | None) -> Parsed:
        """Returns what a value of the topic says."""
        return self._of_plain(value or b"") or self._of_any(value)

    def _of_plain(self, value: bytes) -> Parsed | None:
        """Returns what an envelope says whose images can be given to Spark as they are; None for any other value."""
        if self._plain is None:
            return None
        try:
            envelope = _envelope.decode(value)
            schema = bytes(envelope.schema)
            if bytes(envelope.payload) != b"null":
                envelope = _envelope.decode(envelope.payload)
            if schema != b"null" and any(
                not self._types.keys().isdisjoint(one) for one in _decoders(schema).values()
            ):
                return None
            after = self._plain_text(envelope.after)
            before = self._plain_text(envelope.before) if envelope.op in ("u", "d") else None
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        table = None if envelope.source is None else envelope.source.table
        return Parsed(envelope.op, table, before if envelope.op == "d" else after, before)

    def _plain_text(self, image: msgspec.Raw) -> str | None:
        """Returns an image as it is; raises for one that has to be looked at value by value."""
        text = bytes(image)
        if text == b"null":
            return None
        if len(text) > _PLAIN_BYTES or _TEXT in text or _BYTES in text or _ESCAPED in text:
            raise ValueError
        assert self._plain is not None
        self._plain.decode(text)
        return text.decode()

    def _of_any(self, value: bytes | None) -> Parsed:
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
        after = self._known(envelope, "after", known, decoders, flaws, lacks)
        if flaws and len(flaws) == sum(map(len, lacks.values())):
            flaws[0] = flaws[0]._replace(lacks=encode([*lacks.values()]).decode())
        return Parsed(
            op if isinstance(op, str) else None,
            table if isinstance(table, str) else None,
            before if op == "d" else after,
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
    ) -> str | None:
        """Returns JSON of the declared columns of an image; adds those that do not fit to ``flaws``, and those without a value to ``lacks``."""
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
        return encode(found).decode()


def _plain_decoder(types: Mapping[str, Any]) -> msgspec.json.Decoder[Any] | None:
    """Returns what refuses an image with a value that is not plain; None if a column never is."""
    if not all(isinstance(kind, str) and kind in _PLAIN for kind in types.values()):
        return None
    columns = [(f"c{at}", _PLAIN[kind] | None, None) for at, kind in enumerate(types.values())]
    names = {f"c{at}": name for at, name in enumerate(types)}
    return msgspec.json.Decoder(msgspec.defstruct("Image", columns, rename=names))


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
