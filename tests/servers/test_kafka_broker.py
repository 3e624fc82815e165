"""What the sink takes for granted of a real broker."""

import pytest

from tests.publishers.support import wait_until
from tests.servers.kafka_broker import KafkaBroker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")


def producer(broker):
    made = confluent_kafka.Producer(
        {"bootstrap.servers": broker.servers, "transactional.id": "one", "log_level": 0}
    )
    made.init_transactions(30)
    return made


def committed(broker, topic):
    """What readers of committed records see."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
    reader.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
    found, ended = [], set()
    while len(ended) < len(partitions):
        record = reader.poll(30)
        assert record is not None
        if record.error() is None:
            found.append(record.value())
        else:
            ended.add(record.partition())
    reader.close()
    return found


@pytest.mark.timeout(240)
def test_transactions_of_a_real_broker_are_whole_and_a_newer_producer_fences_the_older(tmp_path):
    """Also over a kill of the broker, which keeps what was committed."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        first = producer(broker)
        for value, ends in ((b"kept", first.commit_transaction), (b"gone", first.abort_transaction)):
            first.begin_transaction()
            first.produce("things", value)
            ends(30)
        second = producer(broker)
        first.begin_transaction()
        first.produce("things", b"of the older")
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            first.commit_transaction(30)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
        assert caught.value.args[0].fatal()
        second.begin_transaction()
        second.produce("things", b"of the newer")
        second.commit_transaction(30)

        def whole():
            return sorted(committed(broker, "things")) == [b"kept", b"of the newer"]

        # The broker tells that a transaction is committed before readers see it. Killed in between, it may lose the end of it for good.
        wait_until(whole)
        broker.kill()
        broker.start()
        wait_until(whole)
