"""One type for two: the smallest of which values of both are, in Spark's JSON of types.

Schemas of an entity type only grow, as those of tables that merge schemas do: a column that was published stays, and may be null where a
batch does not have it. So writers that have columns of their own publish one schema between them, however their batches alternate.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["merged"]

_WIDENING: Final = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types whose values, as JSON has them, are values of those behind them."""


def merged(new: Any, old: Any) -> Any:
    """A type of which values of both are; it equals ``old`` if that contains ``new``.

    Types that have nothing in common, such as a number and a text, have no such type: then it is ``new``.

    Args:
        new: A type of Spark.
        old: What was published, by whomever and in whatever form.
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
    """What both have to have in common; a struct is only one if each of its fields has a name and a type."""
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
    """The fields of both, those that were published first; what only one of them has may be null."""
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
