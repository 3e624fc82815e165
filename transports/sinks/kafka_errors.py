"""What an error of Kafka's client means for a sink."""

from typing import Final

from confluent_kafka import KafkaError

from transports.sinks.errors import TargetRefused, TargetUnavailable, TooLargeForTarget

__all__ = ["judged"]

# librdkafka's own error codes begin with an underscore.
_FENCED_HERE: Final = KafkaError._FENCED  # noqa: SLF001 - see above
_NO_LOGIN: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 - see above
_BAD_ARGUMENT: Final = KafkaError._INVALID_ARG  # noqa: SLF001 - see above
_NEVER: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_LOGIN,
        KafkaError.INVALID_CONFIG, _BAD_ARGUMENT, KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)  # fmt: skip
# One record is the reason, and smaller batches tell which one.
_HALVED: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD}
)
_FENCED: Final = frozenset({_FENCED_HERE, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})


def judged(error: Exception, servers: str, sink: str) -> Exception:
    """Returns the error of sinks for one of the client.

    Args:
        error: The client's error.
        servers: The brokers, for the text.
        sink: The name of the sink.
    """
    reason = error.args[0] if error.args else None
    if not isinstance(reason, KafkaError):
        return TargetUnavailable(f"{servers}: {error}")
    why = f"{servers}: {reason.str()}"
    if reason.code() in _HALVED:
        return TooLargeForTarget(why)
    if reason.code() in _FENCED:
        return TargetRefused(f"a newer runner of sink {sink} sends: {why}")
    return TargetRefused(why) if reason.code() in _NEVER else TargetUnavailable(why)
