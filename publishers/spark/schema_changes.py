"""Publishes the schema of a batch ahead of the rows that need it, unless the published schema contains it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from publishers.mutations.mutation import Mutation, columns_of, schema
from publishers.schemas.registry import SchemaVersion
from publishers.spark.schema_merge import merged
from publishers.wal.format.columns import Columns

__all__ = ["news_of", "with_schema"]

_PART: Final = "entity"

Find = Callable[[str], SchemaVersion | None]


def with_schema(batches: Iterable[Columns], schema: Mapping[str, Any], newest: Find) -> Iterator[Columns]:
    """Yields the batches, with a SCHEMA change ahead of the first rows of each entity type whose schema grows.

    Args:
        batches: The rows.
        schema: The schema of the rows, in Spark's JSON of types.
        newest: Returns the newest published schema of an entity type, or None.
    """
    seen: set[str] = set()
    for columns in batches:
        fresh = [name for name in columns.entity_types if name not in seen]
        seen.update(fresh)
        news = [change for name in fresh if (change := news_of(name, schema, newest(name))) is not None]
        if news:
            yield columns_of(news)
        yield columns


def news_of(
    name: str, schema: Mapping[str, Any], newest: SchemaVersion | None, version: int | None = None
) -> Mutation | None:
    """Returns the SCHEMA change for an entity type; None if the newest published schema contains the schema.

    Args:
        name: The entity type.
        schema: The schema of the rows.
        newest: The newest published schema, or None.
        version: Version of the new schema; None for the next one.
    """
    if newest is None:
        return _telling(name, schema, None, version)
    whole = merged(schema, newest.body)
    return None if whole == newest.body else _telling(name, whole, newest, version)


def _telling(
    name: str, told_schema: Mapping[str, Any], last: SchemaVersion | None, version: int | None
) -> Mutation:
    before = None if last is None else last.parts.get(_PART)
    old = {} if last is None or last.body is None else _fields(last.body)
    new = _fields(told_schema)
    touched = [field for field in {**old, **new} if old.get(field) != new.get(field)]
    return schema(name, told_schema, version, part=_PART, before=before, changed=touched)


def _fields(body: Any) -> dict[str, Any]:
    """Returns the fields of a schema by name; an empty dict for a schema that another writer published in another form."""
    fields = body.get("fields", ()) if isinstance(body, Mapping) else ()
    return {field["name"]: field for field in fields if isinstance(field, Mapping) and "name" in field}
