"""Which partitions of a topic have the marker of which schema; no client of Kafka is needed here."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from publishers.errors import HistoryPruned, PositionError
from publishers.model.position import Position
from transports.sinks.kafka_records import KafkaRecord

__all__ = ["KafkaMarker", "KafkaMarkers"]


class KafkaMarker(msgspec.Struct, frozen=True):
    """A marker, and how many partitions have it.

    Attributes:
        topic: Its topic.
        key: Its key.
        value: Its value.
        headers: Its headers.
        token: The position of its schema, as the text of a token.
        version, index: This position.
        partitions: The first partitions of the topic, which have it.
    """

    topic: str
    key: bytes
    value: bytes
    headers: dict[str, str]
    token: str
    version: int
    index: int
    partitions: int

    @property
    def record(self) -> KafkaRecord:
        """Its record."""
        return KafkaRecord(self.topic, self.key, self.value)


class KafkaMarkers:
    """The markers that were sent: one for each schema, the newest.

    Args:
        kept: What `told` has returned, also in another process; None for the first time.
        position_of: Parses the text of a token; raises ``PositionError`` for one of another history, whose markers are forgotten.
    """

    def __init__(self, kept: Any = None, position_of: Callable[[str], Position] | None = None) -> None:
        found: list[KafkaMarker] = msgspec.convert(kept or [], list[KafkaMarker])
        self._sent = {
            (one.topic, one.key): one
            for one in found
            if position_of is None or _is_known(position_of, one.token)
        }
        self._sending = self._kept = self._sent  # with those of the batch that is not confirmed yet
        self._topics = {one.topic for one in found}  # none of the others lacks any

    def begin(self) -> None:
        """Begins a batch; what an attempt that failed has sent does not count."""
        self._sending = dict(self._sent)

    def confirm(self) -> None:
        """Ends a batch that was confirmed."""
        self._sent = self._sending

    @property
    def told(self) -> Any:
        """The markers as JSON, if they have changed since the last time; else None."""
        if self._sending == self._kept:
            return None
        self._kept = dict(self._sending)
        return msgspec.to_builtins(list(self._sending.values()))

    def note(self, marker: KafkaMarker) -> None:
        """Notes a marker that is sent to the first partitions of its topic."""
        self._sending[marker.topic, marker.key] = marker
        self._topics.add(marker.topic)

    def lacking(
        self, topic: str, place: Position, partitions_of: Callable[[str], int]
    ) -> Iterator[tuple[KafkaMarker, int]]:
        """Yields the markers of a topic, with each partition that it did not have when they were sent.

        Args:
            topic: The topic.
            place: The position of the change that is sent next. Markers of later schemas are left out: these are sent again.
            partitions_of: Returns the number of partitions of a topic.
        """
        if topic not in self._topics:
            return
        for known, marker in list(self._sending.items()):
            if marker.topic == topic and (marker.version, marker.index) < place:
                now = partitions_of(topic)
                if now > marker.partitions:
                    self._sending[known] = msgspec.structs.replace(marker, partitions=now)
                for partition in range(marker.partitions, now):
                    yield marker, partition


def _is_known(position_of: Callable[[str], Position], token: str) -> bool:
    try:
        position_of(token)
    except HistoryPruned:
        return True
    except PositionError:
        return False
    return True
