"""What is said of a transaction beside its changes: annotations and producer."""

import hashlib
import os
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
from publishers.wal.format.control import OWNER_BYTES, REMOTE_VERSION

__all__ = ["Label", "Producer", "RemoteProducer", "check_mutations", "check_producer", "producer_id"]

_encoder: Final = msgspec.json.Encoder()


class _Ids:
    """Ids of transactions: UUIDs of version 8 (RFC 9562 5.8), whose first half is random once in each process; the rest counts.

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
    """A producer of whom a server vouches that it is that of a principal; others cannot take its name.

    Attributes:
        principal: The name of the principal.
        name: What the principal calls it.
    """

    principal: str
    name: str

    @property
    def id(self) -> UUID:
        """Its identity, which tells that it is remote, and by its first bytes whose it is; see ``publishers.wal``."""
        whose = hashlib.sha256(self.principal.encode("utf-8", "surrogatepass")).digest()
        rest = hashlib.sha256(whose + self.name.encode("utf-8", "surrogatepass")).digest()
        bits = bytearray(whose[:OWNER_BYTES] + rest[: 16 - OWNER_BYTES])
        bits[6] = bits[6] & 0x0F | REMOTE_VERSION << 4
        bits[8] = bits[8] & 0x3F | 0x80  # the variant of RFC 9562
        return UUID(bytes=bytes(bits))

    def __str__(self) -> str:
        return f"{self.principal}/{self.name}"


Producer = tuple[str | UUID | RemoteProducer, int]
"""Who commits, and a number that rises with each of its transactions: the key that makes a retry harmless."""


def producer_id(name: str | UUID | RemoteProducer) -> UUID:
    """The identity under which a producer's last sequence is remembered.

    Raises:
        InvalidChange: If it is no name.
    """
    if isinstance(name, RemoteProducer):
        return name.id
    if not isinstance(name, (str, UUID)) or not name or (isinstance(name, str) and not encodable(name)):
        raise InvalidChange("producer", name, "a name or a UUID")
    return name if isinstance(name, UUID) else uuid5(NAMESPACE_URL, "penstock:producer:" + name)


def check_producer(producer: Producer) -> None:
    """Checks a producer's name and sequence.

    Raises:
        InvalidChange: If one of them is not what it must be.
    """
    if not isinstance(producer, tuple) or len(producer) != 2:
        raise InvalidChange("producer", producer, "a pair (name, sequence)")
    name, sequence = producer
    producer_id(name)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise InvalidChange("producer sequence", sequence, "a whole number from 0 to 2**63 - 1")


def check_mutations(mutations: Iterable[Mutation]) -> Sequence[Mutation]:
    """What is to be committed, as something that can be gone through more than once.

    Raises:
        InvalidChange: If it is not several mutations.
    """
    right = "a list of them: log.commit([upsert(...)])"
    if isinstance(mutations, (list, tuple)):
        return mutations
    if isinstance(mutations, (Mutation, Mapping, Columns)):
        raise InvalidChange("mutations", mutations, right)
    return listed("mutations", mutations, right)


class Label(NamedTuple):
    """What is said of a transaction as a whole.

    Attributes:
        annotations: JSON of its id, the producer's full name, and what the application says.
        producer: Who commits, or None.
        sequence: The producer's number for it.
    """

    annotations: bytes
    producer: UUID | None
    sequence: int

    @classmethod
    def of(cls, meta: Mapping[str, Any] | None, producer: Producer | None) -> "Label":
        """Labels a transaction.

        Raises:
            InvalidChange: If ``meta`` is not JSON, or the producer is none.
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
