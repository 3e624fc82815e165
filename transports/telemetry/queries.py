"""Figures of the process's streaming queries for the statistics of a server."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

__all__ = ["QUERIES_MOST", "SparkQueries"]

QUERIES_MOST: Final = 64
"""The most queries reported; each is a label value of metrics."""
_NAME_MOST: Final = 200
_ERROR_MOST: Final = 500
_PARTS_MOST: Final = 16
_LOG: Final = logging.getLogger("penstock.transports")


class _Query(msgspec.Struct):
    """One query, as ``publishers.spark.ProgressListener.statistics`` returns it."""

    state: Literal["RUNNING", "IDLE", "STOPPED", "FAILED"]
    batch: int | None
    batches: int
    rows: int
    batchRows: int  # noqa: N815 - the spelling of the wire
    inputRate: float  # noqa: N815 - the spelling of the wire
    rate: float
    seconds: dict[str, float]
    behind: int | None
    error: str | None


class SparkQueries:
    """Reads the figures of streaming queries, and validates and bounds them.

    Args:
        read: Returns the figures by query name, the most recently active queries last; None without queries.
    """

    def __init__(self, read: Callable[[], Mapping[str, Any]] | None) -> None:
        self._read = read
        self._failed = False

    def statistics(self) -> dict[str, Any]:
        """Returns ``sparkQueries`` with at most 64 queries; empty without queries or if the callback fails, which is logged once."""
        if self._read is None:
            return {}
        try:
            queries = msgspec.convert(dict(self._read()), dict[str, _Query])
        except Exception:  # noqa: BLE001 - user code failed; the server still reports the rest
            if not self._failed:
                _LOG.exception("spark_queries failed, so streaming queries have no metrics")
            self._failed = True
            return {}
        self._failed = False
        return {
            "sparkQueries": {
                name[:_NAME_MOST]: _bounded(one) for name, one in [*queries.items()][-QUERIES_MOST:]
            }
        }


def _bounded(one: _Query) -> dict[str, Any]:
    found = msgspec.structs.asdict(one)
    found["seconds"] = dict([*one.seconds.items()][:_PARTS_MOST])
    found["error"] = None if one.error is None else one.error[:_ERROR_MOST]
    return found
