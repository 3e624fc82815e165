"""What each face makes of a change: a seeded sample of everything that a writer can say, and the faces by name."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from penstock_cdc.fields import discard, push, remove_field, set_field
from penstock_cdc.mutations import expire, schema
from publishers import Content, Images, Integers, Mutation, Position, rekey, remove, truncate, upsert
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.model.position import PositionToken
from publishers.mutations.mutation import columns_of
from publishers.snapshots.rows import read_row
from publishers.state.rows import StoredRow, shown_row
from publishers.views.masking import Drop, Hash, Mask
from publishers.views.view import View
from publishers.wal.format.columns import encode_payload
from transports.codec.changes import changes_json, read_array
from transports.codec.events import EventEncoder, encode_change
from transports.graphql.projection import PayloadProjection
from transports.sinks.formats import RECORDS, change_object
from transports.sinks.sink import SinkContext

LOG = UUID(int=7)
MOMENT = datetime(2026, 11, 20, 12, 30, 0, 123456, UTC)
VERSION = 41
VIEWS = {
    "header": View(),
    "body": View(Content.BODY),
    "text": View.of(Content.BODY, integers=Integers.TEXT),
    **{images.name.lower(): View.of(Content.BODY, images=images) for images in Images},
}
SELECTED = (
    *("version", "index", "count", "cursor", "timestamp", "area", "operation", "entity_type", "key", "body"),
    *("before", "changed", "schema_version", "entry_version", "origin", "meta", "lacking", "expires_at"),
    *("linked", "field", "action", "error"),
)


def token(position: Position) -> PositionToken:
    return PositionToken(LOG, 3, position)


class _Still:
    """A clock."""

    def monotonic(self) -> float:
        return 0.0

    def now_us(self) -> int:
        return 1_764_000_000_000_000


def context(view: View) -> SinkContext:
    """What a sink with a view is opened with."""

    def change_id(change: Any) -> str:
        return f"{LOG.hex}:{change.position}"

    def position_of(_text: str) -> Position:
        raise AssertionError("no sink of this sample moves")

    return SinkContext(
        "sink", "log", LOG.hex, view, 0, _Still(), lambda place: str(token(place)), position_of, change_id
    )


def sample(seed: int, count: int) -> list[Mutation]:
    """Mutations with every combination of what is attached, repeatable by the seed."""
    chosen = random.Random(seed)
    return [_mutation(chosen, number) for number in range(count)]


def _mutation(chosen: random.Random, number: int) -> Mutation:
    def maybe(make: Callable[[], Any]) -> Any:
        return make() if chosen.random() < 0.5 else None

    def key() -> str | bytes:
        return chosen.choice(["42", 'é "q"', b"\xff\x00", "a/b", f"k{number}"])

    stamps = {
        "meta": maybe(lambda: chosen.choice([{"m": 1.5, "n": None}, {"n": 2**60 + number}, {}])),
        "schema_version": maybe(lambda: chosen.choice([1, 3, 2**53 + 1])),
        "entry_version": maybe(lambda: chosen.choice([0, VERSION, 2**62 + number])),
        "origin": maybe(lambda: chosen.choice(["rome", "ö\u2028", ""])),
    }
    moment = maybe(lambda: MOMENT + timedelta(microseconds=chosen.randrange(10**12)))
    image = {"n": number, "long": 2**60, "text": chosen.choice(["a", "ü"]), "tags": ["a", "b"]}
    before = maybe(lambda: {"n": number - 1, "long": 2**60, "tags": ["b"], "old": None})
    kind = f"kind{chosen.randrange(3)}"
    match chosen.randrange(8):
        case 0:
            return remove(kind, key(), before=before, **stamps)
        case 1:
            return expire(kind, key(), before=before, expires_at=moment, **stamps)
        case 2:
            return truncate(kind, **stamps)
        case 3:
            return rekey(kind, f"old{number}", key(), image, before=before, expires_at=moment, **stamps)
        case 4:
            stamps.pop("schema_version"), stamps.pop("entry_version")
            return schema(kind, {"type": "struct", "fields": []}, number + 1, **stamps)
        case 5:
            parts = [set_field("n", number), push("tags", "b"), discard("tags", "c"), remove_field("old")]
            return upsert(kind, f"part{number}", image, changes=parts, **stamps)
        case _:
            changed = "auto" if before is not None else maybe(lambda: ["n", "long"])
            return upsert(kind, key(), image, before=before, changed=changed, expires_at=moment, **stamps)


def block_of(mutations: list[Mutation]) -> Block:
    """A transaction of mutations."""
    columns = columns_of(mutations)
    return Block(
        columns,
        version=VERSION,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=columns.count + 1,
        transaction_bytes=100,
        committed_at=1_772_366_400_123_456,
        annotations=b'{"id":"1-2","meta":{"user":"ann","n":9007199254740993}}',
    )


def views() -> Iterator[tuple[str, View]]:
    """The views by name, one with a mask and one of a narrow projection among them."""
    yield from VIEWS.items()
    mask = Mask.of({"n": Drop(), "$key": Hash("s" * 32), "$meta.n": "hidden"})
    yield "masked", View.of(Content.BODY, mask=mask, integers=Integers.TEXT)
    yield "apart", View(Content.BODY, apart=True)


def blocks(seed: int = 1, count: int = 40) -> list[Block]:
    """One transaction for each mutation of the sample, as entry versions of a key may not fall in one."""
    return [block_of([mutation]) for mutation in sample(seed, count)]


def stored(block: Block) -> list[bytes]:
    """The payload of the frame."""
    return [encode_payload(block.columns, block.annotations)]


def wire(block: Block, view: View) -> list[bytes]:
    """The events of ``penstock.v1+json``."""
    return EventEncoder(token).events([Slice(block, block.indices)], view)


def alone(block: Block, view: View) -> list[bytes]:
    """The same of changes that lie in no block."""
    return [
        encode_change(change, str(token(change.after)), view.integers)
        for change in block.changes(block.indices, view)
    ]


def native(block: Block, view: View) -> list[bytes]:
    """Changes as sinks send them."""
    told = context(view)
    return [msgspec.json.encode(change_object(change, told)) for change in block.changes(block.indices, view)]


def records(block: Block, view: View) -> list[bytes]:
    """Values of records, in the formats beside the native one."""
    told, source = context(view), msgspec.defstruct("Source", [("service", str, "penstock")])()
    return [
        msgspec.json.encode(make(change, told, source))
        for name, make in RECORDS.items()
        if name != "native"
        for change in block.changes(block.indices, view)
    ]


def graphql(block: Block, view: View) -> list[bytes]:
    """Payloads of a subscription that selects every field."""
    projection = PayloadProjection("onChange", [(name, name) for name in SELECTED], token, view)
    return [projection.payload(block, index) or b"" for index in block.indices]


def lines(mutation: Mutation) -> list[bytes]:
    """Changes as a client sends them, and what becomes of them at a server."""
    try:
        said = msgspec.json.encode(changes_json([mutation]))
    except Exception as error:
        return [str(error).encode()]
    return [said, *(repr(msgspec.structs.astuple(row)).encode() for row in read_array(said))]


def rows(block: Block, view: View) -> list[bytes]:
    """Rows of the state, alone and as changes of a snapshot."""
    made = []
    for index in block.indices[1:]:
        meta = None if block.columns.meta is None else block.columns.meta[index - 1]
        row = StoredRow("kind", b"k", block.body(index), meta, 7, index, block.committed_at)
        shown = block.change(index, view)
        read = read_row(row, shown, "place", MOMENT)  # type: ignore[arg-type]  # its cursor is only kept
        made += [repr(msgspec.structs.astuple(shown_row(row))), repr(msgspec.structs.astuple(read))]
    return [text.encode() for text in made]


OF_VIEW: dict[str, Callable[[Block, View], list[bytes]]] = {
    "wire": wire,
    "alone": alone,
    "native": native,
    "records": records,
    "graphql": graphql,
    "rows": rows,
}
