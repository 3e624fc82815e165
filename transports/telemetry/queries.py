"""What the streaming queries of the process say of themselves, as a server tells it."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

__all__ = ["QUERIES_MOST", "SparkQueries"]

QUERIES_MOST: Final = 64
"""Queries that are told of, as each is a label of metrics."""
_NAME_MOST: Final = 200
_ERROR_MOST: Final = 500
_PARTS_MOST: Final = 16
_LOG: Final = logging.getLogger("penstock.transports")


class _Query(msgspec.Struct):
    """One query, as ``publishers.spark.ProgressListener.statistics`` has it."""

    state: Literal["RUNNING", "IDLE", "STOPPED", "FAILED"]
    batch: int | None
    batches: int
    rows: int
    batchRows: int  # noqa: N815 - as it travels
    inputRate: float  # noqa: N815 - as it travels
    rate: float
    seconds: dict[str, float]
    behind: int | None
    error: str | None


class SparkQueries:
    """Asks for the figures of queries, and takes nothing from them but those.

    Args:
        tell: Tells them, by the names of the queries, those heard of last at the end; None if there are none.
    """

    def __init__(self, tell: Callable[[], Mapping[str, Any]] | None) -> None:
        self._tell = tell
        self._failed = False

    def statistics(self) -> dict[str, Any]:
        """They as ``sparkQueries``, of 64 queries; nothing if there is nothing to ask, or it fails, which is logged once."""
        if self._tell is None:
            return {}
        try:
            told = msgspec.convert(dict(self._tell()), dict[str, _Query])
        except Exception:  # noqa: BLE001 - code of the user's, and a server that tells the rest
            if not self._failed:
                _LOG.exception("spark_queries failed, so nothing is told of streaming queries")
            self._failed = True
            return {}
        self._failed = False
        return {
            "sparkQueries": {
                name[:_NAME_MOST]: _bounded(one) for name, one in [*told.items()][-QUERIES_MOST:]
            }
        }


def _bounded(one: _Query) -> dict[str, Any]:
    found = msgspec.structs.asdict(one)
    found["seconds"] = dict([*one.seconds.items()][:_PARTS_MOST])
    found["error"] = None if one.error is None else one.error[:_ERROR_MOST]
    return found
