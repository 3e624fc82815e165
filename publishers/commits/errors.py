"""Errors of producers; `publishers.errors` has the whole tree."""

from publishers.errors import LogError

__all__ = ["ProducerConflict"]


class ProducerConflict(LogError):
    """A transaction has the newest sequence of its producer, but other changes than the log has under it. Nothing was written.

    Attributes:
        producer: The name of the producer; its id if it has no name.
        sequence: The sequence.
        version: The version that the producer has committed under the sequence.
    """

    def __init__(self, producer: str, sequence: int, version: int) -> None:
        super().__init__(
            f"producer {producer!r:.120} has committed other changes under sequence {sequence}, as version {version}; commit new "
            f"changes under a sequence above {sequence}"
        )
        self.producer = producer
        self.sequence = sequence
        self.version = version
