"""Types of msgspec that read values from JSON as `reading` does, or refuse them: several times as fast.

What they refuse may still be readable, such as a double of NaN, which is text; so whoever uses them falls back on `reading`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypedDict

from msgspec import Meta

from publishers.lossless.reading import Reader, kind_of, reader

__all__ = ["PLAIN", "PlainType", "plain_type"]

PLAIN: Final[Mapping[str, Any]] = {
    **{
        name: Annotated[int, Meta(ge=-(1 << bits), lt=1 << bits)]
        for name, bits in (("byte", 7), ("short", 15), ("integer", 31))
    },
    "long": Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    # A whole number beyond may not fit.
    "double": Annotated[float, Meta(gt=-float(1 << 53), lt=float(1 << 53))],
    "string": str,
    "boolean": bool,
}
"""Types whose values need nothing more."""

_READ: Final[Mapping[str, Any]] = {
    "float": Annotated[float, Meta(gt=-float(1 << 24), lt=float(1 << 24))],  # likewise
    **dict.fromkeys(("decimal", "date", "timestamp", "timestamp_ntz", "binary"), str),
}
"""Types whose values are then read by `reader`."""


_LIST: Any = list
_DICT: Any = dict


class PlainType(NamedTuple):
    """A type of msgspec, and what turns its values into those that `reader` returns.

    Attributes:
        type: The type; null is a value of it.
        read: Turns a value; None if it is the same.
    """

    type: Any
    read: Reader | None


def plain_type(schema: Any, leaves: Mapping[str, Reader]) -> PlainType | None:
    """Returns the type of msgspec for a valid type of `reader`; None if there is none.

    Args:
        schema: The type.
        leaves: As of `reader`.
    """
    try:
        return _plain(schema, leaves)
    except LookupError:
        return None


def _plain(schema: Any, leaves: Mapping[str, Reader]) -> PlainType:
    if isinstance(schema, str):
        if schema in PLAIN and schema not in leaves:
            return PlainType(PLAIN[schema] | None, None)
        return PlainType(_READ[kind_of(schema)] | None, reader(schema, leaves))
    if schema["type"] == "array":
        item, read = _plain(schema["elementType"], leaves)
        return PlainType(_LIST[item] | None, read and _items(read))
    if schema["type"] == "map":
        value, read = _plain(schema["valueType"], leaves)
        return PlainType(_DICT[{"string": str}[schema["keyType"]], value] | None, read and _values(read))
    members = {one["name"]: _plain(one["type"], leaves) for one in schema["fields"]}
    if len(members) < len(schema["fields"]):
        raise LookupError(schema)
    make: Any = TypedDict
    made = make("Members", {name: one.type for name, one in members.items()}, total=False)
    reads = [(name, one.read) for name, one in members.items() if one.read is not None]
    return PlainType(made | None, _members(reads) if reads else None)


def _items(read: Reader) -> Reader:
    return lambda values: None if values is None else [*map(read, values)]


def _values(read: Reader) -> Reader:
    return lambda members: None if members is None else {name: read(one) for name, one in members.items()}


def _members(reads: list[tuple[str, Reader]]) -> Reader:
    def read(members: Any) -> Any:
        if members is not None:
            for name, one in reads:
                if (value := members.get(name)) is not None:
                    members[name] = one(value)
        return members

    return read
