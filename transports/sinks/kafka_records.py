"""The records of Kafka that a change becomes, and the partitions of their keys; no client of Kafka is needed here."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from publishers.errors import InvalidOption
from publishers.model.change import Area, Change, Operation
from transports.sinks.formats import RECORDS, WebhookSource
from transports.sinks.sink import SinkContext

__all__ = ["PLACES", "KafkaRecord", "KafkaRecords", "once", "partition_of"]


_FACTOR: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_WORD: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key.

    Args:
        key: The key of a record.
        partitions: The number of partitions of its topic, from 1.
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for begin in range(0, whole, 4):
        piece = int.from_bytes(data[begin : begin + 4], "little") * _FACTOR & _WORD
        piece = (piece ^ piece >> 24) * _FACTOR & _WORD
        value = (value * _FACTOR & _WORD) ^ piece
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _WORD
    value = (value ^ value >> 13) * _FACTOR & _WORD
    return value ^ value >> 15


PLACES: Final = "penstock.places."
"""The beginning of the names of the topics of places."""

_DELETES: Final = (Operation.REMOVE, Operation.EXPIRE)
_TYPE: Final = "{entity_type}"
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_TOPICS: Final = "1 to 249 of the letters a to z, digits, '.', '_' and '-', and neither '.' nor '..'"


class KafkaRecord(NamedTuple):
    """One record, or the same one for each partition of its topic.

    Attributes:
        topic: The topic.
        key: The key.
        value: The value; None for a tombstone.
        beside: The key whose partition the record goes to, if that is not its own key.
        everywhere: Whether it goes to each partition of the topic.
        alone: Whether it goes to partition 0, is sent when all records before it are confirmed, and confirmed before the next is sent.
    """

    topic: str
    key: bytes
    value: bytes | None
    beside: bytes | None = None
    everywhere: bool = False
    alone: bool = False

    def partitions(self, count_of: Callable[[str], int]) -> Iterable[int | None]:
        """Returns the partitions that it goes to; None for the one that the client chooses by its key.

        Args:
            count_of: Returns the number of partitions of a topic.
        """
        if self.everywhere:
            return range(count_of(self.topic))
        if self.alone:
            return (0,)
        return (None if self.beside is None else partition_of(self.beside, count_of(self.topic)),)


class KafkaRecords:
    """Makes the records of changes; the arguments are those of `KafkaSink`.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    def __init__(
        self,
        topic: str,
        *,
        form: str,
        tombstones: bool,
        field_changes: bool,
        schema_topic: str | None,
        source: WebhookSource,
    ) -> None:
        if not isinstance(topic, str) or _TOPIC.fullmatch(topic.replace(_TYPE, "x")) is None:
            raise InvalidOption("topic", topic, f"a name with or without {{entity_type}}: {_TOPICS}")
        if schema_topic is not None and (
            not isinstance(schema_topic, str) or _TOPIC.fullmatch(schema_topic) is None
        ):
            raise InvalidOption("schema_topic", schema_topic, f"a name: {_TOPICS}")
        if schema_topic == topic:
            raise InvalidOption("schema_topic", schema_topic, "another topic than that of entities")
        if form not in RECORDS:
            raise InvalidOption("form", form, f"one of {', '.join(RECORDS)}")
        if field_changes and form != "native":
            raise InvalidOption(
                "field_changes", field_changes, f"left out with form={form!r}: only native can say them"
            )
        self._topic, self._form, self._source = topic, RECORDS[form], source
        self._tombstones, self._field_changes = tombstones, field_changes
        self._schema_topic = schema_topic

    def flaw(self, change: Change) -> str | None:
        """Returns why no record can be made of a change; None if it can."""
        if change.entity_type is None or not (
            change.area is Area.DATA or (change.area is Area.SCHEMA and self._schema_topic is not None)
        ):
            return None
        topic = _topic(self._topic, change.entity_type)
        if not _is_topic(topic):
            return f"no topic can be called {topic!r}, after its entity type: a name has {_TOPICS}"
        if topic == self._schema_topic or topic.startswith(PLACES):
            return f"topic {topic!r}, called after its entity type, holds the schemas or the places of sinks"
        return None

    def of(self, change: Change, context: SinkContext) -> Iterable[KafkaRecord]:
        """Returns the records of a change, in their order."""
        if change.area is Area.SCHEMA:
            return self._schema(change, context)
        if change.area is not Area.DATA or change.entity_type is None:
            return ()
        return () if change.field is not None and not self._field_changes else self._change(change, context)

    def _change(self, change: Change, context: SinkContext) -> Iterable[KafkaRecord]:
        topic, key = _topic(self._topic, change.entity_type), _key(change)
        value = msgspec.json.encode(self._form(change, context, self._source))
        if change.field is not None:
            # The compaction of a topic must not take a piece of an entity for the newest record of the entity, or of another piece.
            own = _key(change, change.field, change.version, change.index)
            return (KafkaRecord(topic, own, value, beside=key),)
        record = KafkaRecord(topic, key, value, None, change.key is None)
        if self._tombstones and change.key is not None and change.operation in _DELETES:
            return record, KafkaRecord(topic, key, None)
        return (record,)

    def _schema(self, change: Change, context: SinkContext) -> Iterator[KafkaRecord]:
        """Yields a schema, and a marker for each partition that may hold changes of its entity type."""
        if self._schema_topic is None:
            return
        value = msgspec.json.encode(RECORDS["native"](change, context, self._source))
        yield KafkaRecord(self._schema_topic, _key(change), value, alone=True)
        if change.entity_type is not None:
            marker = {
                "marker": "schema",
                "entity_type": change.entity_type,
                "id": context.change_id(change),
            }
            topic = _topic(self._topic, change.entity_type)
            yield KafkaRecord(topic, _key(change), msgspec.json.encode(marker), everywhere=True)


def once(change_id: Callable[[Change], str]) -> Callable[[Change], str]:
    """Returns a function that computes the id of a change once for all its records, and for their headers and values."""
    last: Change | None = None
    text = ""

    def remembered(change: Change) -> str:
        nonlocal last, text
        if change is not last:
            last, text = change, change_id(change)
        return text

    return remembered


# There are few entity types, and many changes of each.
@lru_cache(maxsize=1024)
def _topic(template: str, entity_type: str | None) -> str:
    return template.replace(_TYPE, entity_type or "")


@lru_cache(maxsize=1024)
def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None


def _key(change: Change, *more: str | int) -> bytes:
    parts = [change.entity_type, change.key, *more]
    try:
        return msgspec.json.encode(parts)
    except UnicodeEncodeError:  # bytes that are not UTF-8, which stand as lone surrogates
        text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogateescape")
