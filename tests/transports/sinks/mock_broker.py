"""A broker in this process: the one that librdkafka keeps for tests, which other clients reach over its port."""

from confluent_kafka import Consumer, Producer, TopicPartition


class MockBroker:
    """One broker, whose topics are made when they are asked for, with four partitions.

    Attributes:
        servers: Its address.
    """

    def __init__(self):
        self._holder = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._holder.list_topics(timeout=30).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def close(self):
        """Ends the broker with its client, which has no other end."""
        self._holder = None

    def records(self, topic):
        """All records of a topic as (partition, key, value), in the order of each partition."""
        settings = {"bootstrap.servers": self.servers, "group.id": "test", "log_level": 0}
        reader = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10})
        try:
            partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
            reader.assign([TopicPartition(topic, number, 0) for number in partitions])
            found, ended = [], 0
            while ended < len(partitions):
                record = reader.poll(30.0)
                assert record is not None, "the broker does not answer"
                if record.error() is None:
                    found.append((record.partition(), record.key(), record.value()))
                else:
                    ended += 1
            return found
        finally:
            reader.close()
