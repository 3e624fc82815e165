"""Change feeds in the form of Spark's ``CHANGES`` and Delta, which ``format("penstock")`` also produces with ``schema=entity``.

Each row has an image of an entity, the kind of change in ``_change_type``, and the version in ``_commit_version``. An update is two
rows, the before image and the after image; `change_feed` joins them into one row.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark.arguments import column_names
from publishers.spark.errors import SchemaRefused
from publishers.spark.schema import column_named, key_column, key_parts

__all__ = ["CHANGE_FEED", "change_feed"]

CHANGE_FEED: Final[dict[str, Any]] = {
    "operation_column": "_change_type",
    "operations": {
        "insert": "upsert",
        "update_postimage": "upsert",
        "delete": "remove",
        "truncate": "truncate",
    },
    "before": "_before",
    "order_by": ("_commit_version", "_index", "_step"),
}
"""Sink options for the rows of `change_feed`: ``ChangeSink(log, entity_type="order", key="id", **CHANGE_FEED)``."""

_TYPE: Final = "_change_type"
_VERSION: Final = "_commit_version"
_INDEX: Final = "_index"
_MADE: Final = ("_before", "_step")
_KEY: Final = "_key"
_DROPPED: Final = frozenset({"_commit_timestamp", _KEY})
_OLD: Final = ("delete", "update_preimage")
_CHANGE: Final = "_of_one_change"
_IMAGELESS: Final = "_without_image"


def change_feed(frame: DataFrame, key: str | Sequence[str]) -> DataFrame:
    """Joins the two rows of each update into one; lazy, starts no job.

    Call it inside ``foreachBatch``: Spark cannot run this window over a stream. Both rows of an update must come in one batch, as
    the rows of one commit do. A before image without its update remains in the result and is a bad row for the sink
    (``on_bad_row``); the cause is a changed key or a split batch. An update without a before image becomes an upsert. The key of a
    removal without a before image is taken from ``_key``, if the frame has it.

    Args:
        frame: The fields of an entity, ``_change_type`` and ``_commit_version``. The optional ``_index`` orders several changes of a
            key in one version.
        key: Column or columns of the key, the same as the sink's.

    Returns:
        The fields, ``_change_type``, ``_commit_version``, ``_index``, and the added columns ``_before``, a struct of the fields, and
        ``_step``. ``_commit_timestamp`` and ``_key`` are dropped.

    Raises:
        SchemaRefused: If the frame lacks a required column, or already has a column that is added.
    """
    keys = column_names("key", key)
    for name in (_TYPE, _VERSION, *keys):
        if name not in frame.columns:
            raise SchemaRefused(name, f"is not in the frame, which has {', '.join(frame.columns)}")
    for name in (*_MADE, _CHANGE, _IMAGELESS):
        if name in frame.columns:
            raise SchemaRefused(name, "is in the frame, but is added to it")
    kind = F.lower(_TYPE)
    imageless = (kind == "delete") & reduce(and_, (column_named(name).isNull() for name in keys))
    frame = frame.withColumn(_IMAGELESS, imageless)
    if _KEY in frame.columns:
        frame = _with_keys(frame, keys)
    ours = {_TYPE, _VERSION, _INDEX, _IMAGELESS, *_DROPPED}
    fields = [name for name in frame.columns if name not in ours]
    index = F.col(_INDEX) if _INDEX in frame.columns else F.lit(0)
    image = F.when(~F.col(_IMAGELESS), F.struct(*(column_named(name) for name in fields)))
    change = Window.partitionBy(_VERSION, _INDEX, *(column_named(name) for name in keys))
    rows = frame.withColumn(_INDEX, index).withColumns(
        {
            "_before": F.when(kind.isin(*_OLD), image),
            "_step": F.when(kind.isin(*_OLD), 0).otherwise(1),
        }
    )
    pair = rows.withColumns(
        {
            _CHANGE: F.max(kind == "update_postimage").over(change),
            "_before": F.when(
                kind == "update_postimage",
                F.first(F.when(kind == "update_preimage", image), ignorenulls=True).over(change),
            ).otherwise(F.col("_before")),
        }
    )
    paired = (kind == "update_preimage") & F.col(_CHANGE)
    return pair.where(~F.coalesce(paired, F.lit(False))).select(
        *(column_named(name) for name in fields), _TYPE, _VERSION, _INDEX, *_MADE
    )


def _with_keys(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Fills the key columns of rows without an image from the text of the key, unless their text would be another one."""
    parts = key_parts(frame.schema, keys, F.col(_KEY))
    filled = frame.withColumns(
        {
            name: F.when(F.col(_IMAGELESS), part).otherwise(column_named(name))
            for name, part in zip(keys, parts, strict=True)
        }
    )
    same = ~F.col(_IMAGELESS) | (key_column(filled.schema, keys) == F.col(_KEY))
    return filled.withColumns({name: F.when(same, column_named(name)) for name in keys})
