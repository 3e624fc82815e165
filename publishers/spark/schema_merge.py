"""Merges two types into the smallest type that contains the values of both, in Spark's JSON of types.

Schemas of an entity type only grow, as in tables that merge schemas: a published column stays, and is nullable for batches without
it. So writers with different columns converge on one schema, however their batches alternate.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["merged"]

_WIDENING: Final = (("byte", "short", "integer", "long"), ("float", "double"))
"""Rows of types in which each type, in its JSON form, contains the values of the types before it."""


def merged(new: Any, old: Any) -> Any:
    """Returns a type that contains the values of both types; equals ``old`` if ``old`` contains ``new``.

    Returns ``new`` if no type contains both, as for a number and a string.

    Args:
        new: A type in Spark's JSON.
        old: The published type; any writer may have published it, in any form.
    """
    if isinstance(new, str) and isinstance(old, str):
        ladder = next((one for one in _WIDENING if new in one and old in one), None)
        return new if ladder is None else max(new, old, key=ladder.index)
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
    found = []
    for name in {**known, **fresh}:
        ours, theirs = fresh.get(name), known.get(name)
        if ours is None or theirs is None:
            found.append({**(ours or theirs or {}), "nullable": True})
        else:
            null = bool(ours.get("nullable", True) or theirs.get("nullable", True))
            found.append({**theirs, **ours, "type": merged(ours["type"], theirs["type"]), "nullable": null})
    return found
