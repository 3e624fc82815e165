"""The expressions that bring the rows of one schema, made in the JVM once and used for every batch.

Each part of an expression is a command to the JVM, a column of the batch some twenty of them. A micro-batch of the same schema as one
before needs none of them again.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaGateway
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from publishers.spark.schema import IMAGES, Encoding

__all__ = ["IN_PARTITION", "BatchPlan", "arrow_schema", "free_name", "plan_of"]

_PLANS: Final = 64
IN_PARTITION: Final = 2**33 - 1
"""The bits of a monotonically increasing id that count the rows of a partition."""


class BatchPlan:
    """How rows of one schema are encoded, as far as they are the first ones of their partition."""

    def __init__(self, encoding: Encoding, schema: StructType, gateway: JavaGateway) -> None:
        encoding.check(schema)
        self._columns = encoding.columns(schema)
        self._to_seq: Any = gateway.jvm.PythonUtils.toSeq
        self._limited: tuple[int, Any, Any] = (
            0,
            None,
            None,
        )  # the last limit, who is within it, and what is selected
        self._arrow: dict[bool, pa.Schema] = {}  # by whether Spark uses the large types

    def select(self, frame: DataFrame, most: int) -> DataFrame:
        """Encodes the first ``most`` rows of each partition, or up to an eighth less; the last of them is marked ``beyond``."""
        least = max(0, most.bit_length() - 4)
        most = most >> least << least  # so that it is seldom another one than that of the batch before
        known, within, selected = self._limited
        if known != most:
            # Counted twice, of all rows and then of those that are within, and so up to the same number.
            number = F.monotonically_increasing_id().bitwiseAND(IN_PARTITION)
            within = (number <= most)._jc  # noqa: SLF001 - see _kept
            selected = self._kept([*self._columns, (number == most).alias("beyond")])
            self._limited = most, within, selected
        fitting = frame._jdf.where(within)  # noqa: SLF001 - see _kept
        return DataFrame(fitting.select(selected), frame.sparkSession)

    def _kept(self, columns: list[Column]) -> Any:
        """The columns of a ``select``, in the JVM; nothing public keeps them there."""
        return self._to_seq([column._jc for column in columns])  # noqa: SLF001 - see above

    def arrow_schema(self, selected: DataFrame) -> pa.Schema:
        """The schema of the record batches of what ``select`` made."""
        wide = _wide(selected)
        if wide not in self._arrow:
            self._arrow[wide] = arrow_schema(selected)
        return self._arrow[wide]


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The schema of the record batches of a frame; what was text in the JVM, and is bytes in the log, is read as such."""
    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=_wide(frame))
    for place, field in enumerate(schema):
        if field.name in IMAGES:
            wide = pa.types.is_large_string(field.type)
            schema = schema.set(place, field.with_type(pa.large_binary() if wide else pa.binary()))
    return schema


def _wide(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"


@lru_cache(maxsize=_PLANS)
def _made(encoding: Encoding, schema: StructType, gateway: JavaGateway) -> BatchPlan:
    return BatchPlan(encoding, schema, gateway)


def plan_of(encoding: Encoding, frame: DataFrame) -> BatchPlan:
    """The plan for rows like those of a frame, made if it is not one of the last ones.

    Raises:
        SchemaRefused: If the columns cannot become changes.
    """
    return _made(encoding, frame.schema, frame.sparkSession.sparkContext._gateway)  # noqa: SLF001 - expressions live in its JVM


def free_name(names: Iterable[str]) -> str:
    """A name for a column that is none of some names, in letters of any case."""
    longest = max(map(len, names), default=0)
    return "row".ljust(longest + 1, "_")
