"""What is recorded of a transaction beside its changes: annotations and producer."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from publishers.errors import InvalidChange
from publishers.lossless import encodable
from publishers.mutations.arguments import listed
from publishers.mutations.mutation import Mutation, encode_json
from publishers.wal import Columns
from publishers.wal.format.control import OWNER_BYTES, REMOTE_VERSION, marked

__all__ = ["Label", "Producer", "RemoteProducer", "check_mutations", "check_producer", "producer_id"]

_encoder: Final = msgspec.json.Encoder()
_DRAWN: Final = re.compile("connection-[0-9a-f]{32}")


class _Ids:
    """Ids of transactions: UUIDs of version 8 (RFC 9562 §5.8). The first half is random, drawn once a process; the rest counts.

    An id has to be unique, not secret.
    """

    __slots__ = ("beginning", "number")

    def __init__(self) -> None:
        self.draw()
        os.register_at_fork(after_in_child=self.draw)

    def draw(self) -> None:
        """Begins another sequence of ids."""
        drawn = bytearray(os.urandom(16))
        drawn[6] = drawn[6] & 0x0F | 0x80
        drawn[8] = drawn[8] & 0x3F | 0x80  # the variant
        self.beginning = str(UUID(bytes=bytes(drawn)))[:24].encode()
        self.number = count(int.from_bytes(drawn[10:15]))


_ids: Final = _Ids()


class RemoteProducer(NamedTuple):
    """A producer that a server has assigned to a principal; no other client can use its identity.

    Attributes:
        principal: The name of the principal.
        name: The principal's name for the producer. One of the form ``connection-``, followed by 32 hexadecimal digits, is
            that of one connection.
    """

    principal: str
    name: str

    @property
    def drawn(self) -> bool:
        """Whether the name is one that a connection has drawn for itself, so that it is never used again."""
        return _DRAWN.fullmatch(self.name) is not None

    @property
    def id(self) -> UUID:
        """The producer's identity: marked as remote, its first bytes derived from the principal; see ``publishers.wal``."""
        whose = hashlib.sha256(self.principal.encode("utf-8", "surrogatepass")).digest()
        rest = hashlib.sha256(whose + self.name.encode("utf-8", "surrogatepass")).digest()
        bits = bytearray(whose[:OWNER_BYTES] + rest[: 16 - OWNER_BYTES])
        bits[6] = bits[6] & 0x0F | REMOTE_VERSION << 4
        bits[8] = bits[8] & 0x3F | 0x80  # the variant of RFC 9562
        return UUID(bytes=marked(bytes(bits)) if self.drawn else bytes(bits))

    def __str__(self) -> str:
        return f"{self.principal}/{self.name}"


Producer = tuple[str | UUID | RemoteProducer, int]
"""The producer's name, and a sequence that rises with each of its transactions. Both together make a retry idempotent."""


def producer_id(name: str | UUID | RemoteProducer) -> UUID:
    """Returns the identity under which the log remembers a producer's last sequence.

    Raises:
        InvalidChange: If the name is not a name or a UUID.
    """
    if isinstance(name, RemoteProducer):
        return name.id
    if not isinstance(name, (str, UUID)) or not name or (isinstance(name, str) and not encodable(name)):
        raise InvalidChange("producer", name, "a name or a UUID")
    return name if isinstance(name, UUID) else uuid5(NAMESPACE_URL, "penstock:producer:" + name)


def check_producer(producer: Producer) -> None:
    """Checks a producer's name and sequence.

    Raises:
        InvalidChange: If the name or the sequence is invalid.
    """
    if not isinstance(producer, tuple) or len(producer) != 2:
        raise InvalidChange("producer", producer, "a pair (name, sequence)")
    name, sequence = producer
    producer_id(name)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise InvalidChange("producer sequence", sequence, "a whole number from 0 to 2**63 - 1")


def check_mutations(mutations: Iterable[Mutation]) -> Sequence[Mutation]:
    """Returns the mutations as a sequence that can be iterated more than once.

    Raises:
        InvalidChange: If the argument is not a collection of mutations.
    """
    right = "a list of them: log.commit([upsert(...)])"
    if isinstance(mutations, (list, tuple)):
        return mutations
    if isinstance(mutations, (Mutation, Mapping, Columns)):
        raise InvalidChange("mutations", mutations, right)
    return listed("mutations", mutations, right)


class Label(NamedTuple):
    """What is recorded of a transaction as a whole.

    Attributes:
        annotations: JSON with its id, the producer's full name, and the application's ``meta``.
        producer: The producer's identity, or None.
        sequence: The producer's sequence; 0 without a producer.
    """

    annotations: bytes
    producer: UUID | None
    sequence: int

    @classmethod
    def of(cls, meta: Mapping[str, Any] | None, producer: Producer | None) -> "Label":
        """Makes the label of a transaction.

        Raises:
            InvalidChange: If ``meta`` is not JSON, or the producer is invalid.
        """
        name = b"%b%012x" % (_ids.beginning, next(_ids.number))
        if meta is None and producer is None:
            return tuple.__new__(cls, (b'{"id":"%b"}' % name, None, 0))
        stored: dict[str, Any] = {"id": name.decode()}
        if producer is not None:
            check_producer(producer)
            if not isinstance(producer[0], UUID):
                stored["producer"] = str(producer[0])
        if meta is not None:
            stored["meta"] = msgspec.Raw(encode_json("meta", meta))
        if producer is None:
            return cls(_encoder.encode(stored), None, 0)
        return cls(_encoder.encode(stored), producer_id(producer[0]), producer[1])
