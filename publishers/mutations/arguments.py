"""Arguments of writers: checks that name the argument, and the bytes under which it is stored."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from flow.bridges.iterators import IterablePublisher
from publishers import lossless
from publishers.errors import InvalidChange
from publishers.lossless import encodable
from publishers.model.fields import ATTACHED, GIVEN, FieldKind, compiled
from publishers.views.entities import Model, plain

__all__ = [
    "KEY_RIGHT",
    "check_entity_type",
    "check_given",
    "check_text",
    "encode_json",
    "encode_names",
    "encode_value",
    "key_bytes",
    "listed",
    "meta_again",
    "meta_of",
    "whole",
]

KEY_RIGHT: Final = "at least one character: of all changes only a TRUNCATE has no key"

_encoder: Final = msgspec.json.Encoder()


def encode_json(parameter: str, value: Mapping[str, Any] | bytes | Model) -> bytes:
    """Encodes a mapping or a model as JSON, or checks that bytes are JSON in UTF-8 and returns them unchanged.

    Raises:
        InvalidChange: If a mapping or a model contains what JSON cannot represent, or bytes are not JSON.
    """
    if type(value) is dict or isinstance(value, Mapping):  # in this order: asking an abstract class is slow
        return encode_value(parameter, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        if (flaw := lossless.flaw_of(data)) is not None:
            raise InvalidChange(parameter, data, f"valid JSON in UTF-8 ({flaw})")
        return data
    try:
        text = plain(value)
    except Exception as error:  # noqa: BLE001 - a model is encoded by its own code
        raise InvalidChange(parameter, value, f"a model that JSON can hold ({error})") from None
    if isinstance(text, Mapping):
        return encode_value(parameter, text)
    raise InvalidChange(
        parameter, value, "a mapping, JSON as bytes, a dataclass, a msgspec.Struct or a pydantic model"
    )


def encode_value(parameter: str, value: object) -> bytes:
    """Encodes any value as JSON.

    Raises:
        InvalidChange: If it contains what JSON cannot represent.
    """
    try:
        return lossless.encode(value)
    except lossless.NotFinite as error:
        raise InvalidChange(
            parameter + error.path, "NaN or an infinity", "finite, or text: JSON has no such number"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidChange(parameter, value, f"a mapping that JSON can hold ({error})") from None


def check_entity_type(entity_type: object) -> None:
    """Checks the name of an entity type.

    Raises:
        InvalidChange: If it is invalid.
    """
    if not isinstance(entity_type, str) or not 0 < len(entity_type) <= 1024 or not encodable(entity_type):
        raise InvalidChange("entity_type", entity_type, "a text of 1 to 1024 characters")


def key_bytes(key: object, parameter: str = "key") -> bytes:
    """Returns the stored form of a key.

    Raises:
        InvalidChange: If it is invalid.
    """
    if not key and isinstance(key, (bytes, str)):
        raise InvalidChange(parameter, key, KEY_RIGHT)
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise InvalidChange(parameter, key, "text or bytes")
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidChange(parameter, key, "text that UTF-8 can hold, or bytes") from None


def encode_names(changed: Collection[str]) -> bytes:
    """Returns the stored form of field names.

    Raises:
        InvalidChange: If they are invalid.
    """
    names = listed("changed", changed, "a list of field names")
    if not all(isinstance(name, str) and encodable(name) for name in names):
        raise InvalidChange("changed", changed, "a list of field names")
    return _encoder.encode(names)


def listed(parameter: str, given: object, right: str) -> list[Any]:
    """Copies an iterable argument into a list.

    Raises:
        InvalidChange: If it is a single text, a feed, which has no end, or not iterable.
    """
    single = (str, bytes, bytearray, memoryview, IterablePublisher)
    if isinstance(given, single) or not isinstance(given, Iterable):
        raise InvalidChange(parameter, given, right)
    return list(given)


def check_text(parameter: str, value: object) -> str:
    """Checks a text that UTF-8 can represent, and returns it.

    Raises:
        InvalidChange: If it is not such a text.
    """
    if not isinstance(value, str) or not encodable(value):
        raise InvalidChange(parameter, value, "text")
    return value


def whole(parameter: str, value: object) -> int:
    """Checks a whole number that is a version, and returns it.

    Raises:
        InvalidChange: If it is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidChange(parameter, value, "a whole number from 0 to 2**63 - 1")
    return value


def _moment(parameter: str, value: object) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidChange(parameter, value, "a moment with a time zone")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidChange(parameter, value, "within the years 1 to 9999 of UTC") from None


_STORES: Final[Mapping[FieldKind, Callable[[str, Any], Any]]] = {
    FieldKind.NUMBER: whole,
    FieldKind.TEXT: check_text,
    FieldKind.MOMENT: _moment,
    FieldKind.KEY: lambda name, key: key_bytes(key, name),  # base64, because it may not be UTF-8
    FieldKind.PATH: lambda _name, path: path,
    FieldKind.WORD: lambda _name, word: word,
    FieldKind.JSON: lambda name, value: msgspec.Raw(encode_json(name, value)),
}

meta_of: Final[Callable[..., bytes | None]] = compiled(
    f"meta_of(meta, *, {', '.join(f'{field.name}=None' for field in ATTACHED if field.name != 'meta')})",
    "stored = {}",
    # What the application attached is last, as it may be long.
    *(
        f"if {field.name} is not None: stored[{field.name!r}] = {field.kind.name}({field.name!r}, {field.name})"
        for field in sorted(ATTACHED, key=lambda one: one.name == "meta")
    ),
    "return encode(stored) if stored else None",
    encode=_encoder.encode,
    **{kind.name: store for kind, store in _STORES.items()},
)
"""Returns the ``meta`` column of a change: its rare attributes as one JSON object, or None if it has none.

Args:
    meta: What the application attaches.
    **attached: The other fields of `ATTACHED` by their names; None for none.

Raises:
    InvalidChange: If an attribute cannot be stored.
"""

meta_again: Final[Callable[..., bytes | None]] = compiled(
    "meta_again(change, origin, *, implied)",
    "version = None if implied else change.version",
    "return meta_of("
    + ", ".join(
        "origin=origin"
        if field.name == "origin"
        else f"{field.name}=None if change.{field.attribute} == version else change.{field.attribute}"
        if field.versioned
        else f"{field.name}=change.{field.attribute}"
        for field in ATTACHED
    )
    + ")",
    meta_of=meta_of,
)
"""Returns the ``meta`` column of a change that was read.

Args:
    change: The change.
    origin: Where it was first made.
    implied: Whether to store also what a change of an entity has by default, its version.
"""


def check_given(function: str, given: Mapping[str, object]) -> None:
    """Checks the names of keyword arguments, of which the table of fields has the list.

    Raises:
        TypeError: If there is no such argument.
    """
    if not GIVEN.issuperset(given):
        wrong = next(name for name in given if name not in GIVEN)
        raise TypeError(f"{function}() got an unexpected keyword argument {wrong!r}")
