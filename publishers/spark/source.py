"""The Spark data source ``penstock``: reads logs in batches and streams, and writes them in batches."""

from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from publishers.errors import InvalidOption
from publishers.spark.source_arrow import CHANGE_SCHEMA, chosen_schema
from publishers.spark.source_entities import typed_schema
from publishers.spark.source_log import SourceLog
from publishers.spark.source_options import SourceOptions
from publishers.spark.source_reader import ChangeReader, ChangeStreamReader, reader_for
from publishers.spark.source_server import ServerReader, ServerStreamReader, newest_schema
from publishers.spark.writer import ChangeWriter, WriterOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ChangeSource", "register"]


class ChangeSource(DataSource):
    """The data source of ``spark.read.format("penstock").load("var/orders")``, of ``readStream``, and of ``df.write``."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Returns the selected columns.

        Raises:
            InvalidOption, InvalidCriteria, SchemaRefused: If an option is wrong.
            LogError: If ``schema=entity`` needs the entity type's schema, and the log cannot be read.
        """
        options = SourceOptions.of(self.options)
        if options.entity is None:
            return chosen_schema(options.columns or CHANGE_SCHEMA.names)
        if options.server is not None:
            entity_schema = newest_schema(options)
        else:
            with closing(SourceLog(options.path)) as log:
                entity_schema = log.schema(options.entity)
        if entity_schema is None:
            raise InvalidOption("schema", "entity", f"left out, or joined by .schema(...): the log was told no schema of {options.entity!r}, as a ChangeSink of its own process tells it")  # fmt: skip
        return typed_schema(entity_schema, options.columns)

    def reader(self, schema: StructType) -> ChangeReader | ServerReader:
        """Returns the reader of a batch query."""
        options = SourceOptions.of(self.options)
        return reader_for(options, schema) if options.server is None else ServerReader(options, schema)

    def streamReader(self, schema: StructType) -> ChangeStreamReader | ServerStreamReader:  # noqa: N802 - Spark's name
        """Returns the reader of a streaming query."""
        options = SourceOptions.of(self.options)
        reader = ChangeStreamReader if options.server is None else ServerStreamReader
        return reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> ChangeWriter:
        """Returns the writer of a batch job."""
        return ChangeWriter(WriterOptions.of(self.options, schema, overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 - Spark's name
        """Refuses ``writeStream.format("penstock")``.

        Raises:
            InvalidOption: Always.
        """
        raise InvalidOption("format", "penstock", "left out of writeStream: foreachBatch(ChangeSink(log, ...)) commits each micro-batch once")  # fmt: skip


def register(spark: "SparkSession") -> None:
    """Registers ``format("penstock")`` with a session whose Python does not discover the module ``pyspark_penstock``."""
    spark.dataSource.register(ChangeSource)
