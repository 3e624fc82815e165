"""The format ``penstock`` of Spark: logs are read in batches and streams, and written in batches."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from publishers.spark.source_arrow import chosen_schema
from publishers.spark.source_options import SourceOptions
from publishers.spark.source_reader import ChangeReader, ChangeStreamReader, reader_for
from publishers.spark.writer import ChangeWriter, WriterOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ChangeSource", "register"]


class ChangeSource(DataSource):
    """``spark.read.format("penstock").load("var/orders")``, ``readStream`` likewise, and ``df.write.format("penstock")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns that were asked for.

        Raises:
            InvalidOption, InvalidCriteria, SchemaRefused: If an option is wrong.
        """
        return chosen_schema(SourceOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> ChangeReader:
        """Reads in a batch."""
        return reader_for(SourceOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802 - Spark's name
        """Reads in a stream."""
        return ChangeStreamReader(SourceOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> ChangeWriter:
        """Writes a batch."""
        return ChangeWriter(WriterOptions.of(self.options, schema, overwrite=overwrite), schema)


def register(spark: "SparkSession") -> None:
    """Makes ``format("penstock")`` known to a session whose Python does not find the module ``pyspark_penstock`` by itself."""
    spark.dataSource.register(ChangeSource)
