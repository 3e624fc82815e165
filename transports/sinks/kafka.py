"""Sends changes as Kafka records: at least once, or exactly once with the position in the transaction (the extra ``kafka``)."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from publishers.errors import HistoryPruned, InvalidOption
from publishers.model.change import Area, Change
from publishers.model.position import Position
from publishers.views.view import Images
from transports.sinks.errors import TargetOfOtherHistory, TargetRefused, TargetUnavailable
from transports.sinks.formats import WebhookSource
from transports.sinks.kafka_errors import judged
from transports.sinks.kafka_markers import KafkaMarker, KafkaMarkers
from transports.sinks.kafka_records import PLACES, KafkaRecord, KafkaRecords, once
from transports.sinks.retry import check_seconds
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import ItemResult, SinkBatch, SinkContext, SinkGap
from transports.sinks.tls import TargetTls

__all__ = ["ExactlyOnceKafkaSink", "KafkaSink"]

# librdkafka's own error codes begin with an underscore.
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - see above
_HANGING: Final = (
    "neither committed nor aborted. If it stays, a broker that died has lost its end: abort it by kafka-transactions.sh on "
    "every partition that find-hanging names, on this one last; then its changes are sent again"
)
_OURS: Final = (
    "bootstrap.servers", "enable.idempotence", "acks", "transactional.id", "partitioner", "isolation.level",
    "max.in.flight.requests.per.connection",
)  # fmt: skip


class KafkaSink:
    """Sends each change of an entity as a record, whose key is the JSON of ``[entity_type, key]``.

    Partitions are chosen as the Java client chooses them (murmur2 of the key), so changes of an entity stay in order. A batch is
    confirmed when all of its records are. After a crash it may be sent again; the header ``penstock-id`` identifies duplicates.

    Args:
        servers: ``bootstrap.servers``.
        topic: The topic of an entity type: a text with ``{entity_type}`` or without.
        form: The format of values: ``native``, ``debezium`` or ``cloudevents``.
        tombstones: Whether a record without a value follows the record of a removed entity, so that compaction deletes the key.
        field_changes: Whether ``native`` also sends field-level changes, as records with the key ``[entity_type, key, field, version,
            index]`` in the partition of their entity. The other forms cannot tell them from whole entities.
        schema_topic: The topic of schemas, which must have one partition; a marker then goes to each partition of the topic of the
            entity type, before the first change that needs the schema. None: schemas are left out.
        settings: Further settings of librdkafka; a value may be a reference to a secret, ``env:NAME`` or ``file:PATH``.
        source: The sender that ``debezium`` and ``cloudevents`` name.
        timeout: Seconds in which a batch must be confirmed, from 0.5 to 600.
        tls: TLS to the brokers; without ``server_name``, because brokers advertise their own names. None for no TLS.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = False
    partial: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    keeps_entities: ClassVar[bool] = True
    images: ClassVar[Images | None] = None

    def __init__(
        self,
        servers: str,
        topic: str = "{entity_type}",
        *,
        form: str = "native",
        tombstones: bool = True,
        field_changes: bool = False,
        schema_topic: str | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
        source: WebhookSource | None = None,
        timeout: float = 30.0,
        tls: TargetTls | None = None,
    ) -> None:
        if not isinstance(servers, str) or not servers:
            raise InvalidOption("servers", servers, "HOST:PORT, or several with commas")
        check_seconds("timeout", timeout, 0.5, 600.0)
        for name in settings or {}:
            if name in _OURS:
                raise InvalidOption("settings", name, "a setting that the sink does not set itself")
        if tls is not None and tls.server_name is not None:
            raise InvalidOption("server_name", tls.server_name, "left out: brokers have their own names")
        self._tls = tls
        self._servers = servers
        self._records = KafkaRecords(
            topic,
            form=form,
            tombstones=tombstones,
            field_changes=field_changes,
            schema_topic=schema_topic,
            source=source or WebhookSource(),
        )
        self.sends_fields = field_changes
        self._settings = dict(settings or {})
        self._timeout = float(timeout)
        self._context: SinkContext | None = None
        self._producer: Producer | None = None
        self._partitions: dict[str, int] = {}
        self._markers = KafkaMarkers()
        self._errors: list[KafkaError] = []
        self._gap: SinkGap | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._servers}>"

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`. The first batch connects."""
        self._remember(context)
        if self._tls is not None:
            self._tls.warn(context.name, self._servers)
        self._producer = self._made_producer()
        return None

    def _remember(self, context: SinkContext) -> None:
        self._context = replace(context, change_id=once(context.change_id))
        self._markers = KafkaMarkers(context.kept(), context.position_of)

    def write(self, batch: SinkBatch) -> Sequence[ItemResult] | None:
        """See `Sink.write`. Sends up to the first change that no topic can hold, so that a stored position never passes one."""
        for place, change in enumerate(batch.changes):
            flaw = self._records.flaw(change)
            if flaw is not None:
                if place:
                    self._carry(batch.changes[:place], change.position, batch.gap)
                return batch.refused_at(place, flaw)
        self._carry(batch.changes, batch.next, batch.gap)
        return None

    def _carry(self, changes: Sequence[Change], place: Position, gap: SinkGap | None) -> None:
        self._guarded(lambda: self._deliver(changes, place, gap))
        self._markers.confirm()
        self._keep_markers()

    def _deliver(self, changes: Sequence[Change], _place: Position, gap: SinkGap | None) -> None:
        """Sends changes; ``_place`` is the position behind them."""
        self._send(changes, gap)

    def flush(self) -> None:
        """Does nothing: what was written is confirmed."""

    def move(self, position: Position) -> None:
        """Does nothing: the target stores no position."""

    def close(self) -> None:
        """See `Sink.close`."""
        producer, self._producer = self._producer, None
        self._partitions = {}
        if producer is not None:
            producer.purge()
            producer.flush(0)
        self._errors = []

    def alive(self) -> bool:
        """See `Sink.alive`."""
        try:
            # No new producer here: that of transactions is made in `_begin`.
            asked = self._producer or AdminClient(self._common())
            return bool(asked.list_topics(timeout=min(self._timeout, 10.0)).brokers)
        except KafkaException:
            return False

    # Producers.

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None
        return self._context

    @property
    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = self._made_producer()
        return self._producer

    def _common(self) -> dict[str, Any]:
        options = {
            name: SecretReference(value).value()
            if isinstance(value, str) and value.startswith(("env:", "file:"))
            else value
            for name, value in self._settings.items()
        }
        return {
            "log_level": 0,
            "client.id": f"penstock-{self._opened.name}",
            **({} if self._tls is None else self._tls.for_kafka(login="sasl.mechanism" in options)),
            **options,
            "bootstrap.servers": self._servers,
        }

    def _made_producer(self, **more: Any) -> Producer:
        defaults = {"compression.type": "zstd", "linger.ms": 5}
        try:
            return Producer(
                {
                    **defaults,
                    **self._common(),
                    "acks": "all",
                    "enable.idempotence": True,
                    "max.in.flight.requests.per.connection": 5,
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": int(self._timeout * 1000),
                    **more,
                }
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise TargetRefused(f"settings of Kafka: {error}") from None

    def _guarded(self, work: Callable[[], None]) -> None:
        """Calls ``work``; closes the producer if that fails."""
        try:
            work()
        except (KafkaException, BufferError) as error:
            error.__traceback__ = (
                None  # its frames would keep the producer, its threads and its connections alive
            )
            self.close()
            raise judged(error, self._servers, self._opened.name) from None
        except SystemError as error:  # a fatal error of librdkafka, raised during a callback
            error.__traceback__ = None
            self.close()
            if isinstance(error.__cause__, KafkaException):
                error.__cause__.__traceback__ = None
                raise judged(error.__cause__, self._servers, self._opened.name) from None
            # A later callback has replaced the error. Beginning transactions again could fence a newer runner.
            why = f"its client failed for good, as it does when a newer runner of sink {self._opened.name} sends"
            raise TargetRefused(f"{self._servers}: {why} ({error})") from None
        except BaseException:
            self.close()
            raise

    # Records.

    def _send(self, changes: Sequence[Change], gap: SinkGap | None) -> None:
        """Sends records, each with the gap before them if there is one, and returns when all are confirmed."""
        self._gap = gap
        self._partitions = {}  # a topic gets more partitions at any time
        self._markers.begin()
        for change in changes:
            for record in self._records.of(change, self._opened):
                if record.alone:
                    self._settle()
                else:
                    for marker, partition in self._markers.lacking(
                        record.topic, change.position, self._partitions_of
                    ):
                        self._produce(marker.record, marker.headers, partition)
                self._send_record(record, change)
                if record.alone:
                    self._settle()
        self._settle()

    def _send_record(self, record: KafkaRecord, change: Change) -> None:
        headers = {
            "penstock-position": str(change.position),
            "penstock-operation": change.operation.name,
            "penstock-id": self._opened.change_id(change),
        }
        if record.everywhere:
            self._partitions.pop(record.topic, None)
            if change.area is Area.SCHEMA:
                self._note_marker(record, headers, change.position)
        for partition in record.partitions(self._partitions_of):
            self._produce(record, headers, partition)

    def _note_marker(self, record: KafkaRecord, headers: dict[str, str], position: Position) -> None:
        """Notes a marker before it is sent: afterwards a restart may go on behind it."""
        token, count = self._opened.token(position), self._partitions_of(record.topic)
        value = record.value or b""
        self._markers.note(KafkaMarker(record.topic, record.key, value, headers, token, *position, count))
        self._keep_markers()

    def _keep_markers(self) -> None:
        told = self._markers.told
        if told is not None:
            self._opened.keep(told)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            found = self._connected.list_topics(topic, timeout=self._timeout).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    def _produce(self, record: KafkaRecord, headers: dict[str, str], partition: int | None) -> None:
        if self._gap is not None:
            headers = {**headers, "penstock-gap": f"{self._gap.first} {self._gap.next}"}
        changes: list[tuple[str, str | bytes | None]] = [
            (name, text.encode("utf-8", "surrogateescape")) for name, text in headers.items()
        ]
        arguments: dict[str, Any] = {} if partition is None else {"partition": partition}
        producer = self._connected
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=changes,
                    on_delivery=self._delivered,
                    **arguments,
                )
            except BufferError:
                producer.poll(0.05)
                continue
            producer.poll(0)
            return

    def _delivered(self, error: KafkaError | None, _record: object) -> None:
        if error is not None:
            self._errors.append(error)

    def _settle(self) -> None:
        """Returns when all records sent are confirmed; raises if one failed or the timeout has passed."""
        waiting = self._connected.flush(self._timeout)
        errors, self._errors = self._errors, []
        if errors:
            raise KafkaException(errors[0])
        if waiting:
            raise TargetUnavailable(
                f"{self._servers}: {waiting} records are not confirmed in {self._timeout:g} s"
            )


class ExactlyOnceKafkaSink(KafkaSink):
    """A `KafkaSink` that sends each batch, with the position behind it, in one Kafka transaction.

    The position is in a compacted topic of one partition, ``penstock.places.LOG.SINK``, which is created if missing. Readers with
    ``isolation.level=read_committed`` get each change once. A newer runner fences the older one.
    """

    stores_position: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    _stored: Position | None = None
    _unseen: tuple[Position, int] | None = None  # the last place and its offset, until readers get it
    _offset = 0  # of the place sent last
    _reader: Consumer | None = None

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`.

        Raises:
            TargetOfOtherHistory: If the stored position is not of this log's history.
            HistoryPruned: If the changes behind it are no longer kept.
        """
        self._remember(context)
        self._stored = self._unseen = None
        if context.generation:
            self._guarded(self._begin)
        else:
            self._guarded(self._inspect)
        return self._stored

    def close(self) -> None:
        """See `Sink.close`."""
        self._close_reader()
        super().close()

    def flush(self) -> None:
        """Returns when readers get what was committed: a broker that dies before they do may have lost the end of the transaction."""
        if self._unseen is not None:
            self._guarded(self._see)

    def move(self, position: Position) -> None:
        """See `Sink.move`."""
        self._stored = self._unseen = None
        self._guarded(lambda: self._replace(position))

    @property
    def _places(self) -> str:
        return f"{PLACES}{self._opened.log_id}.{self._opened.name}"

    def _inspect(self) -> None:
        """Reads the stored position for an opening that sends nothing, and so creates no topic."""
        found = AdminClient(self._common()).list_topics(timeout=self._timeout).topics
        self._stored = self._read_place() if self._places in found else None

    def _begin(self) -> None:
        """Fences older producers, ends their transactions, and reads the stored position."""
        context = self._opened
        admin = AdminClient(self._common())
        made = NewTopic(self._places, num_partitions=1, config={"cleanup.policy": "compact"})
        for future in admin.create_topics([made], operation_timeout=self._timeout).values():
            try:
                future.result(self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            except TimeoutError:
                raise TargetUnavailable(f"{self._servers}: no answer in {self._timeout:g} s") from None
        name = f"penstock-{context.log_id}-{context.name}"
        self._producer = self._made_producer(
            **{"transactional.id": name, "transaction.timeout.ms": int(self._timeout * 1000) + 1000}
        )
        self._producer.init_transactions(self._timeout)
        self._stored = self._read_place()
        self._check_kept(self._stored)
        self._unseen = None  # the reader got it, and does not get it again

    def _deliver(self, changes: Sequence[Change], place: Position, gap: SinkGap | None) -> None:
        """Sends changes in a transaction; after an attempt with an unknown outcome, only what was not committed."""
        self._transact(changes, place, gap)

    def _replace(self, position: Position) -> None:
        if self._producer is None:
            with contextlib.suppress(TargetOfOtherHistory, HistoryPruned):  # which is what is replaced
                self._begin()
        self._stored = None
        self._transact((), position, None)

    def _transact(self, changes: Sequence[Change], place: Position, gap: SinkGap | None) -> None:
        if self._producer is None:
            self._begin()
        stored = self._stored
        todo = changes if stored is None else [one for one in changes if one.position >= stored]
        if changes and not todo:
            return  # it was committed, although the commit was not acknowledged
        producer = self._connected
        producer.begin_transaction()
        self._send(todo, gap)
        text = self._opened.token(place).encode()
        producer.produce(self._places, text, b"place", partition=0, on_delivery=self._placed)
        self._settle()
        producer.commit_transaction(self._timeout)
        self._stored = None if not changes else place
        self._unseen = place, self._offset

    def _placed(self, error: KafkaError | None, record: Message) -> None:
        self._delivered(error, record)
        if error is None:
            self._offset = record.offset() or 0

    def _see(self) -> None:
        assert self._unseen is not None
        offset = self._unseen[1]
        self._check_kept(self._read(offset, offset + 1))
        self._unseen = None

    def _check_kept(self, place: Position | None) -> None:
        """Raises if readers do not get what was committed, so that it is read from the log and sent again."""
        if self._unseen is not None and (place is None or place < self._unseen[0]):
            why = f"the transaction up to {self._unseen[0]} was committed, and then aborted at the broker; it is sent again"
            raise TargetUnavailable(f"{self._servers}: {why}")

    def _read_place(self) -> Position | None:
        """Reads the last committed position, up to the end that the topic had once older producers were fenced."""
        self._close_reader()
        looking = self._consumer("read_uncommitted")
        try:
            _, high = looking.get_watermark_offsets(TopicPartition(self._places, 0), timeout=self._timeout)
        finally:
            _close(looking)
        return self._read(0, high)

    def _read(self, start: int, end: int) -> Position | None:
        """Reads the last committed position before an offset; the reader goes on where it was, and a new one at ``start``."""
        if self._reader is None:
            self._reader = self._consumer("read_committed")
            self._reader.assign([TopicPartition(self._places, 0, start)])
        return self._last(self._reader, end)

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            _close(reader)

    def _consumer(self, isolation: str) -> Consumer:
        common = {**self._common(), "group.id": f"penstock-{self._opened.name}", "enable.auto.commit": False}
        return Consumer({**common, "isolation.level": isolation, "enable.partition.eof": True})

    def _last(self, reader: Consumer, high: int) -> Position | None:
        clock, text, stable = self._opened.clock, None, None
        end = clock.monotonic() + self._timeout
        while clock.monotonic() < end:
            record = reader.poll(1.0)
            if record is None:
                continue
            error, offset = record.error(), record.offset() or 0
            if error is None:
                text, offset = record.value(), offset + 1
            elif error.code() != _END:
                raise KafkaException(error)
            else:
                stable = offset
            if offset >= high:
                return None if text is None else self._position_of(bytes(text).decode())
        if stable is None:
            why = f"{self._places} cannot be read to its end in {self._timeout:g} s"
        else:
            why = f"{self._places} has a transaction at offset {stable} that is {_HANGING}"
        raise TargetUnavailable(f"{self._servers}: {why}")

    def _position_of(self, text: str) -> Position:
        return self._opened.place_of(text, f"the place in {self._places}", "the topics")


def _close(consumer: Consumer) -> None:
    with contextlib.suppress(KafkaException):
        consumer.close()
