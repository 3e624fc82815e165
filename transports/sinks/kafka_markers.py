"""Which partitions of a topic have the marker of which schema; no client of Kafka is needed here."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from publishers.model.change import Area, Change
from transports.sinks.kafka_records import KafkaRecord

__all__ = ["KafkaMarker", "KafkaMarkers"]


class KafkaMarker(NamedTuple):
    """A marker, its change, and how many partitions have it."""

    record: KafkaRecord
    change: Change
    partitions: int


class KafkaMarkers:
    """The markers that were sent: one for each schema, the newest."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, bytes], KafkaMarker] = {}
        self._sending = self._sent  # with those of the batch that is not confirmed yet

    def begin(self) -> None:
        """Begins a batch; what an attempt that failed has sent does not count."""
        self._sending = dict(self._sent)

    def confirm(self) -> None:
        """Ends a batch that was confirmed."""
        self._sent = self._sending

    def note(self, record: KafkaRecord, change: Change, partitions: int) -> None:
        """Notes a record that was sent to the first partitions of its topic, if it is a marker."""
        if change.area is Area.SCHEMA:
            self._sending[record.topic, record.key] = KafkaMarker(record, change, partitions)

    def lacking(
        self, topic: str, partitions_of: Callable[[str], int]
    ) -> Iterator[tuple[KafkaRecord, Change, int]]:
        """Yields the markers of a topic, with each partition that it did not have when they were sent."""
        for place, (record, change, count) in list(self._sending.items()):
            if place[0] == topic:
                now = partitions_of(topic)
                self._sending[place] = KafkaMarker(record, change, now)
                for partition in range(count, now):
                    yield record, change, partition
