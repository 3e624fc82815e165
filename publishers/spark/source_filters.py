"""Filters that Spark pushes down, applied to record batches by the rules of SQL, where null is neither true nor false."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import DataType, LongType, StringType, StructType

__all__ = ["filtered", "is_known", "version_bounds"]

_COMPARED: Final[dict[type[Filter], Callable[..., Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
_NULLS: Final[dict[type[Filter], Callable[..., Any]]] = {IsNull: pc.is_null, IsNotNull: pc.is_valid}
_KINDS: Final[dict[DataType, type]] = {LongType(): int, StringType(): str}
_UNBOUNDED: Final = 2**63 - 2


def is_known(one: Any, schema: StructType) -> bool:
    """Returns whether `filtered` supports a filter with exactly Spark's result."""
    if isinstance(one, Not):
        return is_known(one.child, schema)
    if (
        type(one) not in {*_COMPARED, *_NULLS, In}
        or len(one.attribute) != 1
        or one.attribute[0] not in schema.names
    ):
        return False
    if type(one) in _NULLS:
        return True
    values = one.value if isinstance(one, In) else [one.value]
    return all(type(value) is _KINDS.get(schema[one.attribute[0]].dataType) for value in values)


def filtered(batch: pa.RecordBatch, filters: Sequence[Any]) -> pa.RecordBatch:
    """Returns the rows that satisfy all filters; each filter must be known (`is_known`)."""
    for one in filters:
        batch = batch.filter(_mask(batch, one))
    return batch


def _mask(batch: pa.RecordBatch, one: Any) -> pa.Array:
    if isinstance(one, Not):
        return pc.invert(_mask(batch, one.child))
    column = batch.column(one.attribute[0])
    if type(one) in _NULLS:
        return _NULLS[type(one)](column)
    if isinstance(one, In):
        found = pc.is_in(column, pa.array(one.value, column.type))
        return pc.if_else(pc.is_valid(column), found, None)
    return _COMPARED[type(one)](column, one.value)


def version_bounds(filters: Sequence[Any], column: str) -> tuple[int, int]:
    """Returns the first and the last version that can satisfy the filters; ``column`` is the column of versions."""
    first, last = 0, _UNBOUNDED
    for one in filters:
        if getattr(one, "attribute", None) == (column,) and type(one) in _COMPARED:
            if isinstance(one, (EqualTo, GreaterThanOrEqual, GreaterThan)):
                first = max(first, one.value + isinstance(one, GreaterThan))
            if isinstance(one, (EqualTo, LessThanOrEqual, LessThan)):
                last = min(last, one.value - isinstance(one, LessThan))
    return first, last
