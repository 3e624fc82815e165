"""A block of changes that are still rows shows what one of the same frame, read back, shows."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from publishers import Area, Content, Mutation, remove, upsert
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.mutations.mutation import columns_of
from publishers.mutations.rows import RowEncoder
from publishers.options import LogOptions
from publishers.views.view import View
from publishers.wal.format.columns import encode_payload
from publishers.wal.format.stored import decode_payload

VIEWS = (View(), View(Content.BODY))
ANNOTATIONS = b'{"id":"11111111-1111-4111-8111-111111111111","meta":{"a":1}}'
bodies = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=2)
maybe = st.none() | bodies
types = st.sampled_from(["order", "Größe", "t"])
keys = st.text(min_size=1, max_size=4) | st.binary(min_size=1, max_size=4)
upserts = st.builds(
    upsert,
    types,
    keys,
    bodies,
    before=maybe,
    changed=st.none() | st.lists(st.sampled_from("abc"), max_size=2),
    meta=maybe,
    origin=st.none() | st.just("rome"),
)
mutations = st.lists(upserts | st.builds(remove, types, keys, before=maybe), min_size=1, max_size=12)


def rows_of(mutations, annotations, **options):
    return RowEncoder(LogOptions(**options), lambda _: (), None).rows(mutations, annotations)


def block_of(columns):
    return Block(
        columns,
        version=7,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=columns.count + 1,
        transaction_bytes=100,
        committed_at=1,
        annotations=ANNOTATIONS,
    )


@given(mutations, st.data())
def test_a_block_of_rows_is_that_of_the_frame(given_mutations, data):
    rows = rows_of(given_mutations, ANNOTATIONS)
    assert rows.payload == encode_payload(columns_of(given_mutations), ANNOTATIONS)
    near, far = block_of(rows), block_of(decode_payload(rows.payload, len(given_mutations))[0])
    low = data.draw(st.integers(0, len(given_mutations)))
    some = range(low, data.draw(st.integers(low, len(given_mutations))) + 1)
    assert near.weight == far.weight
    for view in VIEWS:
        made, expected = near.changes(some, view), far.changes(some, view)
        assert made == expected
        assert [one.timestamp for one in made] == [one.timestamp for one in expected]
    assert dict(Slice(near, some).tally) == dict(Slice(far, some).tally)
    assert rows.values is not None, "nobody has asked for columns"
    chosen = sorted(data.draw(st.sets(st.sampled_from(list(some)))))
    assert near.changes(chosen, VIEWS[1]) == far.changes(chosen, VIEWS[1])
    for index in some:
        assert (near.key(index), near.body(index), near.size(index)) == (
            far.key(index),
            far.body(index),
            far.size(index),
        )
        assert near.change(index, VIEWS[0]) == far.change(index, VIEWS[0])


@given(
    mutations,
    st.sampled_from(["operation", "area", "key", "body", "entity_type", "entry_version", "follows"]),
)
def test_what_is_out_of_the_ordinary_is_left_to_columns(given_mutations, field):
    strange = {
        "operation": 9,
        "area": 2,
        "key": b"",
        "body": "text",
        "entity_type": "",
        "entry_version": 1,
        "follows": (upsert("order", "2", {}),),
    }
    odd = msgspec.structs.replace(given_mutations[0], **{field: strange[field]})
    assert rows_of([*given_mutations, odd], ANNOTATIONS) is None
    assert rows_of([*given_mutations, "no mutation"], ANNOTATIONS) is None
    assert rows_of([Mutation(4, "t", b"a truncate has no key")], ANNOTATIONS) is None
    assert rows_of([Mutation(1, "t", b"k" * 2000)], ANNOTATIONS, max_key_bytes=1024) is None


def test_what_a_stretch_of_rows_has_is_counted_by_entity_type():
    given_mutations = [upsert("order", "1", {}), upsert("visit", "1", {}), remove("order", "2")]
    near = block_of(rows_of(given_mutations, ANNOTATIONS))
    assert near.columns.values is not None
    order, visit, event = (Area.DATA, "order"), (Area.DATA, "visit"), (Area.INFRASTRUCTURE, None)
    assert Slice(near, range(4)).tally == {event: 1, order: 2, visit: 1}
    assert Slice(near, range(2, 4)).tally == {visit: 1, order: 1}
    assert Slice(near, [1, 3]).tally == {order: 2}
    assert Slice(near, range(1)).tally == {event: 1}
