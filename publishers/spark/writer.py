"""Writes the rows of a batch job to a log: tasks stage keys and bodies in files, and the driver commits all as one version."""

import glob
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from flow.clock import SYSTEM_CLOCK
from publishers import lossless
from publishers.errors import InvalidOption, LogBusy
from publishers.log.changelog import ChangeLog
from publishers.lossless import key_text
from publishers.model.change import Operation
from publishers.options import KEEP_HISTORY
from publishers.spark.arguments import column_names
from publishers.spark.arrow import columns_of, pieces
from publishers.spark.errors import RowRefused, SchemaRefused
from publishers.spark.schema import KEY_SEPARATOR, Encoding, is_text, type_kind
from publishers.spark.schema_changes import with_schema
from publishers.spark.source_options import check_known, listed, path_of
from publishers.wal import Columns, RealFileSystem, writer_of

__all__ = ["ChangeWriter", "WriterOptions"]

_KNOWN: Final = (
    "path", "entity_type", "entity_type_column", "key", "operation", "operation_column", "body", "before", "tell_schema",
)  # fmt: skip
_ROWS: Final = 2_000  # rows encoded at once
_PRIVATE: Final = 0o700
_ABANDONED_US: Final = 86_400_000_000  # a staging directory unchanged for longer belongs to a dead job


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The parsed options of a writer.

    Attributes:
        path: Directory of the log; created if missing.
        entity_type: The entity type of all rows; None if a column names it.
        encoding: The encoding of rows.
        told: The schema to publish, or None.
    """

    path: Path
    entity_type: str | None
    encoding: Encoding
    told: Mapping[str, Any] | None

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """Parses options, and checks that rows of the schema can become changes.

        Raises:
            InvalidOption: If an option is unknown, missing or invalid.
            SchemaRefused: If the columns cannot become changes.
        """
        check_known(given, _KNOWN)
        if overwrite:
            raise InvalidOption("mode", "overwrite", "'append': nothing is taken out of a log")
        entity_type, type_column = given.get("entity_type"), given.get("entity_type_column")
        if (entity_type is None) == (type_column is None):
            raise InvalidOption("entity_type", entity_type, "given, or entity_type_column instead of it")
        operation = given.get("operation", "upsert")
        if operation not in ("upsert", "remove"):
            raise InvalidOption("operation", operation, "'upsert' or 'remove'")
        tell = given.get("tell_schema", "true")
        if tell.lower() not in ("true", "false"):
            raise InvalidOption("tell_schema", tell, "'true' or 'false'")
        encoding = Encoding(
            key=column_names("key", listed(given.get("key", ""))),
            body=column_names("body", listed(given["body"])) if "body" in given else None,
            operation=Operation.REMOVE if operation == "remove" else Operation.UPSERT,
            operation_column=given.get("operation_column"),
            entity_type_column=type_column,
            before=given.get("before"),
        )
        encoding.check(schema)
        for name in encoding.key:
            if type_kind(schema[name].dataType) in ("float", "double", "time"):
                raise SchemaRefused(
                    name,
                    f"is of type {schema[name].dataType.simpleString()}; cast it to a string to make a key of it",
                )
        schema_json = encoding.told(schema) if tell.lower() == "true" else None
        return cls(path_of(given), entity_type, encoding, schema_json)


@dataclass(frozen=True, slots=True)
class _Staged(WriterCommitMessage):
    """The result of one task: the name of its staged file, and the number of rows."""

    file: str
    rows: int


class ChangeWriter(DataSourceArrowWriter):
    """Appends the rows of a batch job to a log as one version; no process may have the log open for writing."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        """Checks that the log has no writer, before Spark computes any row.

        Raises:
            LogBusy: If the log is open for writing.
        """
        owner = writer_of(RealFileSystem(), options.path)
        if owner.alive:
            raise LogBusy(options.path, owner.pid)
        self._options = options
        self._schema = schema
        _remove_abandoned(options.path)
        # Beside the log, where both the tasks and the commit can reach it.
        self._staged = options.path.with_name(f"{_staging(options.path)}{uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of one partition; runs in a task, and Spark may run several attempts per partition."""
        encoder = _RowEncoder(self._options.encoding, self._schema)
        self._staged.mkdir(_PRIVATE, parents=True, exist_ok=True)
        file = f"{uuid4().hex}.arrow"
        rows = 0
        with (
            pa.OSFile(str(self._staged / file), "wb") as sink,
            pa.ipc.new_stream(sink, encoder.schema) as stream,
        ):
            for batch in iterator:
                for start in range(0, batch.num_rows, _ROWS):
                    stream.write_batch(encoder.encoded(batch.slice(start, _ROWS)))
                rows += batch.num_rows
        return _Staged(file, rows)

    def commit(self, messages: Sequence[Any]) -> None:
        """Commits the staged rows as one version, in the order of partitions.

        Raises:
            LogBusy: If the log was opened for writing meanwhile.
            RowRefused: If a row cannot become a change.
            LogError: If the log refuses the commit.
        """
        options = self._options
        rows = sum(message.rows for message in messages)
        try:
            if rows:
                # No retention: only the owner of the log decides what to delete.
                with ChangeLog.open(options.path, borrowed=True, **KEEP_HISTORY) as log:
                    cut = pieces(self._batches(messages), log.options.frame_bytes)
                    columns: Iterator[Columns] = (
                        columns_of(piece, options.encoding, options.entity_type) for piece in cut
                    )
                    if options.told is not None:
                        columns = with_schema(columns, options.told, log.schema)
                    log.commit_columns(columns, meta={"spark": {"rows": rows}}, durable=True)
        finally:
            self.abort(messages)

    def abort(self, messages: Sequence[Any]) -> None:
        """Removes all staged files, including those of killed tasks."""
        shutil.rmtree(self._staged, ignore_errors=True)

    def _batches(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        for message in messages:
            with (
                pa.memory_map(str(self._staged / message.file)) as source,
                pa.ipc.open_stream(source) as stream,
            ):
                yield from stream


def _staging(path: Path) -> str:
    return f".{path.name}.staged-"


def _remove_abandoned(path: Path) -> None:
    """Removes staging directories of jobs that were killed with their driver."""
    for staged in path.parent.glob(f"{glob.escape(_staging(path))}*"):
        with suppress(OSError):  # its own job, or another one, removes it concurrently
            newest = max(file.stat().st_mtime_ns for file in (staged, *staged.iterdir()))
            if SYSTEM_CLOCK.now_us() - newest // 1000 > _ABANDONED_US:
                shutil.rmtree(staged)


class _RowEncoder:
    """Encodes keys and bodies by the rules of ``publishers.lossless``, with the same result as the JVM's in a sink."""

    def __init__(self, encoding: Encoding, schema: StructType) -> None:
        self._encoding = encoding
        self._body = encoding.body_columns(schema)
        self._plain = {name: _plain(schema[name].dataType) for name in schema.names}
        kept = {"operation": encoding.operation_column, "entity_type": encoding.entity_type_column}
        self._kept = {name: column for name, column in kept.items() if column is not None}
        self._escaped = [len(encoding.key) > 1 and is_text(schema[name].dataType) for name in encoding.key]
        images = ["key", "body"] if encoding.before is None else ["key", "body", "before"]
        self.schema = pa.schema(
            [(name, pa.binary()) for name in images] + [(name, pa.string()) for name in self._kept]
        )

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows as the columns that `columns_of` expects.

        Raises:
            RowRefused: If a row holds a NaN or an infinity, which JSON lacks.
        """
        made = {name: batch.column(column).cast(pa.string()) for name, column in self._kept.items()}
        if "operation" in made:
            made["operation"] = pc.utf8_lower(made["operation"])
        values = {
            name: self._values(batch, name)
            for name in {
                *self._encoding.key,
                *self._body,
                *([self._encoding.before] if self._encoding.before else []),
            }
        }
        made["key"] = list(map(self._key, *(values[name] for name in self._encoding.key)))
        rows = zip(*(values[name] for name in self._body), strict=True)
        made["body"] = [self._image(dict(zip(self._body, row, strict=True))) for row in rows]
        gone = self._gone(made.get("operation"), batch.num_rows)
        made["body"] = [None if none else body for none, body in zip(gone, made["body"], strict=True)]
        if self._encoding.before is not None:
            made["before"] = [
                None if image is None else self._image(image) for image in values[self._encoding.before]
            ]
        return pa.RecordBatch.from_arrays(
            [pa.array(made[f.name], f.type) for f in self.schema], schema=self.schema
        )

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        values, plain = batch.column(name).to_pylist(), self._plain[name]
        return values if plain is None else [None if value is None else plain(value) for value in values]

    def _gone(self, operations: pa.Array | None, rows: int) -> Sequence[bool]:
        """Returns which rows are removals, which have no body."""
        if operations is None:
            return [self._encoding.operation is Operation.REMOVE] * rows
        bodiless = {word for word, meaning in self._encoding.operations if meaning is Operation.REMOVE}
        return [word in bodiless for word in operations.to_pylist()]

    def _key(self, *parts: Any) -> bytes | None:
        texts = []
        for part, escaped in zip(parts, self._escaped, strict=True):
            if part is None:
                return None
            text = key_text(part)
            texts.append(text.replace("%", "%25").replace("/", "%2F") if escaped else text)
        return KEY_SEPARATOR.join(texts).encode()

    def _image(self, row: Mapping[str, Any]) -> bytes:
        try:
            return lossless.encode(row)
        except lossless.NotFinite as error:
            why = f"holds NaN or an infinity at {error.path}, which a ChangeSink can tell and a batch job cannot"
            raise RowRefused("*", why) from None


def _plain(dtype: DataType) -> Callable[[Any], Any] | None:
    """Returns the function that converts Arrow values for JSON (times to UTC, maps to objects); None if none is needed."""
    match dtype:
        case StructType():
            parts = {
                field.name: made for field in dtype.fields if (made := _plain(field.dataType)) is not None
            }
            if not parts:
                return None
            return lambda value: {
                k: parts[k](v) if k in parts and v is not None else v for k, v in value.items()
            }
        case ArrayType():
            each = _plain(dtype.elementType)
            return (
                None
                if each is None
                else lambda value: [None if item is None else each(item) for item in value]
            )
        case MapType():
            of = _plain(dtype.valueType) or (lambda value: value)
            return lambda value: {key_text(k): None if v is None else of(v) for k, v in value}
        case _ if dtype.typeName() == "timestamp":
            return lambda value: value.astimezone(UTC)
        case _:
            return None
