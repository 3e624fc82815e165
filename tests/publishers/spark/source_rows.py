"""What a source of changes reads, as rows, and what the log's own history makes of it."""

import json
import pickle
import zlib
from itertools import chain

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
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

from penstock_cdc.mutations import expire, schema
from publishers import Content, Criteria, remove, truncate, upsert
from publishers.spark.source import ChangeSource


def source(path, **options):
    texts = {name: str(value) for name, value in options.items()}
    return ChangeSource(CaseInsensitiveDict({"path": str(path), **texts}))


def tasks(reader, *offsets):
    """The rows of each task, planned and read as in two processes."""
    ranges = reader.partitions(*offsets)
    reader = pickle.loads(pickle.dumps(replaced(reader)))
    return [
        [row for batch in reader.read(one) for row in batch.to_pylist()]
        for one in pickle.loads(pickle.dumps(ranges))
    ]


def joined(parts):
    return list(chain.from_iterable(parts))


def replaced(reader):
    """The reader without what a planner has open, which no task gets."""
    reader.__dict__.pop("_log", None)
    return reader


def read(path, **options):
    made = source(path, **options)
    return joined(tasks(made.reader(made.schema())))


def stream(path, **options):
    made = source(path, **options)
    return made.streamReader(made.schema())


def batches(path, limit=None, offset=None, **options):
    """The rows of the micro-batches up to the end of the log, each by a planner of its own; and the last offset."""
    found = []
    while True:
        reader = stream(path, **options)
        offset = offset or reader.initialOffset()
        end = reader.latestOffset(offset, limit or reader.getDefaultReadLimit())
        if end == offset:
            reader.stop()
            return found, offset
        ranges = reader.partitions(offset, end)
        rows = [
            row for one in ranges for batch in stream(path, **options).read(one) for row in batch.to_pylist()
        ]
        found.append(rows)
        reader.commit(end)
        reader.stop()
        offset = end


def told(log, *wishes, content=Content.BODY, **reading):
    """The rows that the log's own history makes."""
    found = log.history(Criteria.of(*wishes), limit=1_000_000, content=content, **reading).changes
    return [row_of(log, change) for change in found]


def row_of(log, change):
    def text(data):
        return None if data is None else data.decode()

    return {
        "version": change.version,
        "index": change.index,
        "count": change.count,
        "timestamp": change.timestamp,
        "area": change.area.name,
        "operation": change.operation.name,
        "entity_type": change.entity_type,
        "key": change.key,
        "body": text(change.body_bytes),
        "before": text(change.before_bytes),
        "changed": None if change.changed is None else list(change.changed),
        "position": str(log.token(change.position)),
    }


def plain(rows):
    """Rows as `told` has them; what is attached is compared by itself."""
    return [
        {**row, "changed": None if row["changed"] is None else json.loads(row["changed"])}
        for row in ({name: value for name, value in row.items() if name != "attached"} for row in rows)
    ]


def digest(rows):
    crc = 0
    for row in rows:
        crc = zlib.crc32(f"{row['version']}:{row['index']} {row['key']} {row['body']}".encode(), crc)
    return len(rows), crc


def fill(log):
    """Small frames and large ones, all kinds of changes, several types in a frame, images of all sorts, and two epochs."""
    log.commit([schema("order", {"type": "struct", "fields": []})])
    for number in range(40):
        log.commit([upsert("order", f"a{number}", {"n": number})], meta={"number": number})
    log.commit(
        upsert("order" if n % 3 else "flight/ñ", f"b{n}", {"n": n, "text": "é" * (n % 50)}, before={"n": n - 1} if n % 2 else None,
               changed=["n"] if n % 2 else None)
        for n in range(900)
    )  # fmt: skip
    log.commit(upsert("order", f"c{n}", {"n": n}) for n in range(300))
    log.commit([truncate("order"), *(remove("order", f"d{n}") for n in range(100)), truncate("flight/ñ")])
    log.commit([truncate("order"), remove("order", "x", before={"n": 1}), expire("order", "y")])
    log.commit(
        [upsert("order", "z", {"a": {"b": 2}}, before={"a": {"b": 1}}, changes="auto", meta={"why": "é"})]
    )


def holds(one, row):
    """What SQL says: a comparison with null is neither true nor false."""
    match one:
        case Not(child):
            found = holds(child, row)
            return None if found is None else not found
        case IsNull((name,)):
            return row[name] is None
        case IsNotNull((name,)):
            return row[name] is not None
    value = row[one.attribute[0]]
    if value is None:
        return None
    tests = {
        EqualTo: value.__eq__,
        GreaterThan: value.__gt__,
        GreaterThanOrEqual: value.__ge__,
        LessThan: value.__lt__,
        LessThanOrEqual: value.__le__,
        In: lambda values: value in values,
        StringStartsWith: lambda part: str.startswith(value, part),
        StringEndsWith: lambda part: str.endswith(value, part),
        StringContains: lambda part: part in value,
    }
    return tests[type(one)](one.value)
