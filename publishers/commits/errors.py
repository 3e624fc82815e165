"""Errors of producers; `publishers.errors` has the whole tree."""

from publishers.errors import LogError

__all__ = ["OutboxBehind", "ProducerConflict"]


class ProducerConflict(LogError):
    """A transaction has the newest sequence of its producer, but other changes than the log has under it. Nothing was written.

    Attributes:
        producer: The name of the producer; its id if it has no name.
        sequence: The sequence.
        version: The version that the producer has committed under the sequence.
    """

    producer: str
    sequence: int
    version: int
    says = (
        "producer {producer!r:.120} has committed other changes under sequence {sequence}, as version {version}; commit new "
        "changes under a sequence above {sequence}"
    )


class OutboxBehind(LogError):
    """The log is ahead of the numbers in an outbox, so that its rows would be ignored. Nothing was written, and nothing deleted.

    Attributes:
        producer: The producer of the outbox.
        batch: The number of the rows.
        sequence: The newest sequence of the producer in the log.
    """

    producer: str
    batch: int
    sequence: int
    says = (
        "rows of the outbox have the number {batch}, but its producer {producer!r:.120} is at {sequence} in the log: the "
        "database was put back to an older state, or another outbox has this producer; compare the rows with the log, then "
        "delete them, or set their batch to null to commit them"
    )
