"""T14: whatever bytes a decoder gets, it answers or raises what it documents; nothing else, and in bounded time."""

import json
import os
import random
import struct
import time
from uuid import UUID

import msgspec
import pytest

from penstock_cdc.types import PositionToken
from publishers import ChangeLog, Criteria, Position
from publishers.errors import FormatTooNew, PenstockError
from publishers.wal import Column, Columns
from publishers.wal.files.head import HeadState
from publishers.wal.files.segment import SegmentHeader, SparseIndex, Trailer, segment_name
from publishers.wal.files.tail_page import Tail
from publishers.wal.format.columns import encode_payload
from publishers.wal.format.control import ControlTables, Epoch, ProducerState, decode_control, encode_epoch
from publishers.wal.format.frame import Chain, FrameHeader, Scan
from publishers.wal.format.stored import decode_payload
from tests.harness.scale import SCALE
from tests.publishers.support import opened, order
from tests.publishers.wal.logs import commit
from tests.publishers.wal.logs import opened as opened_wal
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG
from transports.codec.messages import Ask, SubscribeRequest, parse
from transports.codec.starts import start_json, start_of, start_of_text
from transports.errors import Violation
from transports.limits import Limits
from transports.operations.table import read_operation

SECONDS = 0.8 * SCALE
"""For each decoder."""
ID = UUID(int=7)
NASTY = [
    b"",
    b"\0",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\0\0\0\x80",
    b'"',
    b"{",
    b"[" * 3000,
    b"1e999",
    b"\xed\xa0\x80",
]


def columns() -> bytes:
    keys = Column.of([b"a", b"bc", b"ab", b""])
    bodies = Column.of([b"{}", None, b'{"a":1}', b"x" * 40])
    made = Columns(
        memoryview(bytes([0x11, 0x12, 0x11, 0x11])),
        ("Product", "Order"),
        memoryview(struct.pack("4H", 0, 1, 0, 1)).cast("H"),
        keys,
        bodies,
    )
    return encode_payload(made, b'{"note":1}')


def control() -> bytes:
    tables = ControlTables()
    tables.committed(bytes(range(16)), ProducerState(3, 4, 5))
    tables.opened(1, 1)
    tables.opened(2, 5, 7)
    return tables.encode()


def index() -> bytes:
    sparse = SparseIndex()
    for number in range(5):
        sparse.add(number + 1, 1, number, 4096 * (number + 1) * 40)
    return sparse.pack(ID, 1, Trailer(5, 9, 10**6, 7))


def segment() -> bytes:
    system = SimulatedFileSystem()
    log = opened_wal(system)
    for number in range(4):
        commit(log, b"body %d" % number)
    log.abandon()
    return system.snapshot(LOG)[segment_name(1)][:4096]


def scan(data: bytes) -> None:
    system = SimulatedFileSystem.of(LOG, {"x": data})
    for offset, header, payload in Scan(system.open(LOG / "x", "read"), 64, len(data), Chain(0, 0)):
        assert 64 <= offset <= len(data) - header.extent
        assert len(payload) == header.length


def touch(data: bytes) -> None:
    found, _ = decode_payload(data, 4)
    for column in (found.key, found.body):
        if column is not None:
            [column[number] for number in range(found.count)]
    assert found.count == 4


def wish(text: bytes) -> None:
    message = parse(text)
    payload = getattr(message, "payload", None)
    if isinstance(payload, dict):
        if isinstance(message, Ask):
            read_operation(str(message.__struct_config__.tag), payload)
        else:
            SubscribeRequest.of(payload, Limits())


def start(text: bytes) -> None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    found = start_of(value)
    assert start_of(start_json(found).get("start")) == found


def typed(text: bytes) -> None:
    found = start_of_text("--since", text.decode("latin-1"))
    assert start_json(found) == start_json(found)


def criteria(text: bytes) -> None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    found = Criteria.from_json(value)
    assert Criteria.from_json(found.to_json()) == found


QUESTION = b'{"type":"schema","id":"a","payload":{"log":"shop","entity_type":"order","version":3}}'
SUBSCRIBE = json.dumps(
    {
        "type": "subscribe",
        "id": "1",
        "payload": {
            "log": "orders",
            "credits": 10,
            "since": "earliest",
            "content": "BODY",
            "heartbeatMs": 50,
            "batch": {"events": 5, "lingerMs": 1},
            "criteria": [{"keys": ["1"], "entity_types": ["order"]}],
        },
    }
).encode()
CRITERIA = json.dumps(
    [
        {
            "keys": ["1"],
            "key_globs": ["a*"],
            "entity_types": ["order"],
            "areas": ["DATA"],
            "operations": ["UPSERT"],
        }
    ]
).encode()
TOKEN = str(PositionToken(ID, 3, Position(12, 4), 7)).encode()
CONTROL_ERRORS = (ValueError, FormatTooNew)


def decoded(data: bytes) -> None:
    decode_control(data, ControlTables())


DECODERS = {
    "frame header": (
        lambda: FrameHeader(3, 1, 2, 1, 1, 1, 3, 0, 5, bytes(16), 0, 2, 3).pack(),
        FrameHeader.unpack,
        struct.error,
    ),
    "frames": (segment, scan, OSError),
    "HEAD": (lambda: HeadState(ID, 1, 1, 2, 1, 900, 1, random=7).pack(), HeadState.unpack, ()),
    "TAIL": (
        lambda: bytes(4096),
        lambda data: Tail(memoryview(data[:4096].ljust(4096, b"\0")), bytes(16)).read(),
        (),
    ),
    "segment header": (lambda: SegmentHeader(1, 1, ID, 5, 0).pack(), SegmentHeader.unpack, ValueError),
    "index": (index, lambda data: SparseIndex.unpack(data, ID, 1), ValueError),
    "columns": (columns, touch, ValueError),
    "checkpoint": (control, decoded, CONTROL_ERRORS),
    "epoch": (lambda: encode_epoch(Epoch(2, 9, 7)), decoded, CONTROL_ERRORS),
    "token": (lambda: TOKEN, lambda data: PositionToken.parse(data.decode("latin-1")), PenstockError),
    "criteria": (lambda: CRITERIA, criteria, PenstockError),
    "starts": (lambda: b'{"time":"2026-03-01T12:00:00.000001+02:00"}', start, PenstockError),
    "typed starts": (lambda: b"2026-03-01T12:00:00.000001+02:00", typed, PenstockError),
    "questions": (lambda: QUESTION, wish, (Violation, PenstockError)),
    "messages": (lambda: SUBSCRIBE, wish, (Violation, PenstockError)),
}


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Some bytes of a valid input changed, cut, repeated or replaced; now and then all of them."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(200))
    found = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del found[at : at + chance.choice([1, 4, 100])]
        elif kind == 2:
            found[at:at] = found[at : at + chance.randrange(30)]
        elif kind == 3:
            found[at:at] = chance.choice(NASTY)
        else:
            nasty = chance.choice(NASTY)
            found[at : at + len(nasty)] = nasty
    return bytes(found)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_raises_nothing_but_what_it_documents(name):
    """T14: bytes changed from valid ones; the seed is told with what was found."""
    valid, decode, errors = DECODERS[name]
    data = valid()
    decode(data)
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    deadline = time.process_time() + SECONDS
    runs = refused = 0
    while time.process_time() < deadline:
        given = mutated(chance, data)
        try:
            decode(given)
        except errors:
            refused += 1
        except BaseException as error:
            error.add_note(f"{name} after {runs} of seed {seed}: {given!r:.2000}")
            raise
        runs += 1
    assert runs > 50


def test_a_damaged_file_of_schemas_is_read_from_the_log_again():
    """T14: it is derived, so no byte of it matters."""
    chance = random.Random(14)
    with opened() as log:
        log.commit([order(1)])
        path = log.path
        log.close()
        file = path / "SCHEMAS"
        whole = file.read_bytes() if file.exists() else b'{"told":[]}\n00000000'
        for _ in range(15):
            file.write_bytes(mutated(chance, whole))
            with ChangeLog.open(path, sync="os", fill_step=0) as again:
                assert again.history(limit=5).changes
