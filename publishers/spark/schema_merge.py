"""Merges two types into the smallest type that contains the values of both, in Spark's JSON of types.

Schemas of an entity type only grow, as in tables that merge schemas: a published column stays, and is nullable for batches without
it. So writers with different columns converge on one schema, however their batches alternate.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from publishers.spark.errors import SchemaRefused

__all__ = ["merged"]

_WIDENING: Final = (("byte", "short", "integer", "long"), ("float", "double"))
"""Rows of types in which each type, in its JSON form, contains the values of the types before it."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_DIGITS: Final = 38  # of the longest decimal


def merged(new: Any, old: Any) -> Any:
    """Returns a type that contains the values of both types; equals ``old`` if ``old`` contains ``new``.

    Returns ``new`` if no type contains both, as for a number and a string.

    Args:
        new: A type in Spark's JSON.
        old: The published type; any writer may have published it, in any form.

    Raises:
        SchemaRefused: If a new column has the name of a published one in other letters, such as ``Name`` and ``name``: Spark could
            not tell them apart.
    """
    if "void" in (new, old):
        return old if new == "void" else new  # the type of null alone
    if isinstance(new, str) and isinstance(old, str):
        ladder = next((one for one in _WIDENING if new in one and old in one), None)
        return _decimal(new, old) if ladder is None else max(new, old, key=ladder.index)
    if not (isinstance(new, Mapping) and isinstance(old, Mapping) and _shape(new) == _shape(old)):
        return new
    match new["type"]:
        case "struct":
            return {**old, **new, "fields": _fields(new, old)}
        case "array":
            return {**old, **new, **_part(new, old, "elementType", "containsNull")}
        case "map":
            key = merged(new["keyType"], old["keyType"])
            return {**old, **new, **_part(new, old, "valueType", "valueContainsNull"), "keyType": key}
        case _:
            return new


def _decimal(new: str, old: str) -> str:
    """Returns the decimal with the digits of both before and behind the point; ``new`` if there is none, or these are no decimals."""
    sizes = [_DECIMAL.fullmatch(one) for one in (new, old)]
    digits = [(int(size[1]) - int(size[2]), int(size[2])) for size in sizes if size is not None]
    if len(digits) < len(sizes):
        return new
    before, behind = (max(pair) for pair in zip(*digits, strict=True))
    return new if before + behind > _DIGITS else f"decimal({before + behind},{behind})"


def _shape(one: Mapping[str, Any]) -> tuple[Any, frozenset[str]]:
    """Returns the shape that two types must share to be merged; a struct needs a name and a type for each field."""
    fields = one.get("fields")
    if fields is not None and not (
        isinstance(fields, list)
        and all(isinstance(f, Mapping) and {"name", "type"} <= f.keys() for f in fields)
    ):
        return None, frozenset()
    return one.get("type"), frozenset(one)


def _part(new: Mapping[str, Any], old: Mapping[str, Any], name: str, null: str) -> dict[str, Any]:
    return {name: merged(new[name], old[name]), null: bool(new[null] or old[null])}


def _fields(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the fields of both structs, published fields first; a field of only one struct becomes nullable."""
    fresh, known = ({field["name"]: field for field in one["fields"]} for one in (new, old))
    letters = {name.lower(): name for name in known if name not in fresh}
    for name in fresh:
        if name not in known and (twin := letters.get(name.lower())) is not None:
            raise SchemaRefused(name, f"has the name of the published column {twin!r} in other letters, which Spark does not tell apart: rename it to {twin!r}, or publish a schema without that one")  # fmt: skip
    found = []
    for name in {**known, **fresh}:
        ours, theirs = fresh.get(name), known.get(name)
        if ours is None or theirs is None:
            found.append({**(ours or theirs or {}), "nullable": True})
        else:
            null = bool(ours.get("nullable", True) or theirs.get("nullable", True))
            found.append({**theirs, **ours, "type": merged(ours["type"], theirs["type"]), "nullable": null})
    return found
