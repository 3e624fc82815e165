"""Brings a batch of unknown size to the driver, and computes its rows once.

The first job encodes the rows, serialises them as record batches, and stores these on the disks of the executors. It returns the size of
each record batch, and the values of as many as should fit; further jobs fetch the others from the disks. So a partition may have any
size, at the cost of writing the batch to disk.
"""

import zlib
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark.inside import gateway_of, java_session
from publishers.spark.partitions import HELD, Partitions, TooMuchAtOnce, Window, in_order
from publishers.spark.plan import IN_PARTITION, plan_of
from publishers.spark.schema import Encoding

__all__ = ["StoredBatches"]

_PARTITION_BITS: Final = (
    33  # low bits of a monotonically increasing id: the row in the partition; above them: the partition
)


class _Stored(NamedTuple):
    """A serialised record batch on the disk of an executor.

    Attributes:
        number: Its monotonically increasing id: partition, and place in the partition.
        size: Size in bytes.
        checksum: CRC-32 of its bytes.
        value: The bytes, if the first job returned them; else None.
    """

    number: int
    size: int
    checksum: int
    value: bytes | None


class StoredBatches:
    """The windows of a batch, in the order of its partitions or sorted by ``order_by``. Iterate once: each iteration computes the batch.

    Attributes:
        largest: Bytes of the largest partition; 0 before the first window.

    Args:
        frame: The batch.
        encoding: The encoding of its rows.
        collect_bytes: Approximate bytes that one job may bring.
    """

    def __init__(self, frame: DataFrame, encoding: Encoding, *, collect_bytes: int) -> None:
        self.largest: int = 0
        self._frame = frame
        self._encoding = encoding
        self._collect_bytes = collect_bytes

    def __iter__(self) -> Iterator[Window]:
        """Yields the windows.

        Raises:
            TooMuchAtOnce: If rows to sort exceed ``HELD`` times ``collect_bytes``, if a record batch exceeds Spark's limit of a job's
                result, or if a record batch was lost with its executor and computed again with other rows; possibly after some
                windows.
        """
        plan, session = plan_of(self._encoding, self._frame), self._frame.sparkSession
        rdd, schema = plan.record_batches(self._frame, IN_PARTITION)
        java: Any = gateway_of(session.sparkContext).jvm
        rdd.persist(java.org.apache.spark.storage.StorageLevel.DISK_ONLY())
        try:
            made = java_session(session).createDataset(rdd, java.org.apache.spark.sql.Encoders.BINARY())
            numbered = DataFrame(made.toDF(), session).withColumn("number", F.monotonically_increasing_id())
            stored = self._listed(numbered, rdd.getNumPartitions())
            windows = (_read(values, schema) for values in self._values(numbered, stored))
            yield from self._ordered(windows) if self._encoding.order_by else windows
        finally:
            rdd.unpersist(False)

    def _ordered(self, windows: Iterator[Window]) -> Iterator[Window]:
        held: Window = []
        for window in windows:
            held += window
            if sum(batch.nbytes for batch in held) > HELD * self._collect_bytes:
                raise TooMuchAtOnce
        if held:
            yield in_order(held, len(self._encoding.order_by))

    def _listed(self, numbered: DataFrame, partitions: int) -> list[_Stored]:
        """Runs the first job, which computes and stores the batch; lists its record batches."""
        value = F.col("value")
        size, place = F.octet_length(value), F.col("number").bitwiseAND(IN_PARTITION)
        share = self._collect_bytes // max(1, partitions)
        few = F.when(size * (place + 1) <= share, value)
        columns = {"number": F.col("number"), "size": size, "checksum": F.crc32(value), "value": few}
        found = _brought(numbered.select([column.alias(name) for name, column in columns.items()]))
        stored = [_Stored(**row) for batch in found for row in batch.to_pylist()]
        for _, group in groupby(stored, lambda one: one.number >> _PARTITION_BITS):
            self.largest = max(self.largest, sum(one.size for one in group))
        return stored

    def _values(self, numbered: DataFrame, stored: list[_Stored]) -> Iterator[list[bytes]]:
        """Yields the record batches in order: returned ones as they are, others fetched in jobs of about ``collect_bytes``."""
        for there, run in groupby(stored, lambda one: one.value is not None):
            some = list(run)
            if there:
                yield [one.value for one in some if one.value is not None]
                continue
            while some:
                ends = accumulate(one.size for one in some)
                few = max(1, sum(1 for end in ends if end <= self._collect_bytes))
                yield _fetched(numbered, some[:few])
                del some[:few]


def _fetched(numbered: DataFrame, wanted: list[_Stored]) -> list[bytes]:
    """Fetches consecutive record batches from the disks of the executors.

    Raises:
        TooMuchAtOnce: If a checksum differs from the listed one, or the result exceeds Spark's limit.
    """
    first, last = wanted[0].number, wanted[-1].number
    chosen = numbered.where(F.col("number").between(first, last)).select("value")
    start, end = first >> _PARTITION_BITS, last >> _PARTITION_BITS
    values = [row["value"] for batch in _brought(chosen, start, end) for row in batch.to_pylist()]
    if [zlib.crc32(value) for value in values] != [one.checksum for one in wanted]:
        raise TooMuchAtOnce
    return values


def _brought(frame: DataFrame, start: int = 0, end: int | None = None) -> Window:
    partitions = Partitions.of(frame)
    found = partitions.bring(start, (partitions.count if end is None else end + 1) - start)
    if found is None:
        raise TooMuchAtOnce
    return found


def _read(values: list[bytes], schema: pa.Schema) -> Window:
    return [pa.ipc.read_record_batch(pa.py_buffer(value), schema) for value in values]
