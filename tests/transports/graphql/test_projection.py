"""What is spliced is what graphql-core would have made."""

import json
from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.fields import push
from publishers import ChangeLog, Content, rekey, remove, upsert
from publishers.blocks.block import Block
from tests.harness.scale import scaled
from tests.publishers.support import wait_until
from transports import Limits
from transports.graphql.errors import RequestRefused
from transports.graphql.execution import Engine

FIELDS = [
    "version",
    "index",
    "count",
    "cursor",
    "timestamp",
    "area",
    "operation",
    "entityType",
    "key",
    "body",
    "before",
    "changed",
    "schemaVersion",
    "entryVersion",
    "origin",
    "meta",
    "expiresAt",
    "linked",
    "field",
    "action",
    "error",
    "__typename",
]

field = st.sampled_from(FIELDS)
directive = st.sampled_from(
    ["", "", "@include(if: $yes)", "@skip(if: $yes)", "@include(if: $no)", "@skip(if: false)"]
)
alias = st.one_of(st.none(), st.sampled_from(["a", "b", "key", "body", "data", "version"]))
leaf = st.tuples(alias, field, directive)
selection = st.recursive(
    st.lists(leaf, min_size=1, max_size=5),
    lambda inner: st.tuples(
        st.sampled_from(["... on Change", "...", "... @include(if: $yes)", "... @skip(if: $yes)"]), inner
    ),
    max_leaves=4,
)
document = st.lists(selection, min_size=1, max_size=3)


def written(part):
    if isinstance(part, tuple):
        head, inner = part
        return f"{head} {{ {written(inner)} }}"
    return " ".join(f"{alias + ': ' if alias else ''}{name} {how}" for alias, name, how in part)


def taken(log, **options):
    """The blocks and indices of changes, to which a subscription goes on adding."""
    found = []

    class Taker:
        def on_subscribe(self, subscription):
            subscription.request(flow.UNBOUNDED)

        def on_next(self, change): ...

        def on_next_batch(self, batch):
            found.extend((part.block, index) for part in batch.slices for index in part.indices)

        def on_error(self, error): ...

        def on_complete(self): ...

    log.changes(content=Content.BODY, **options).subscribe(Taker(), executor=flow.INLINE)
    return found


def blocks(log):
    found = taken(log)
    log.commit(
        [
            upsert("order", "1", {"a": [1, None]}, before={"a": 0}, changed=["a", "ü"], meta={"m": 1}),
            upsert("größe", 'ü"\n', b"  null "),
            remove("order", b"\xff".decode("utf-8", "surrogateescape")),
            upsert("order", "plain", b"1.50", expires_at=datetime(2026, 1, 1, tzinfo=UTC)),
            rekey("order", "1", b"\xfe", {}),
            upsert("order", "1", {"a": 1}, changes=[push("a", 1)]),
        ],
        meta={"user": "ann"},
    )
    log.commit([remove("order", "1")])
    assert len(found) == 11
    return found


def test_every_selection_looks_as_graphql_core_makes_it(tmp_path):
    """E4, E5, F24: numbers that JavaScript would round are texts in both."""
    with ChangeLog.open(tmp_path / "log") as log:
        engine = Engine({"log": log}, Limits())
        events = blocks(log)
        compared = 0

        @settings(max_examples=scaled(150), deadline=None, suppress_health_check=list(HealthCheck))
        @given(parts=document, yes=st.booleans(), root=st.sampled_from(["", "x: "]))
        def compare(parts, yes, root):
            nonlocal compared
            text = " ".join(map(written, parts))
            query = (
                f"subscription ($yes: Boolean = true, $no: Boolean = false) {{ {root}onChange {{ "
                f"anchor: index @skip(if: $no) @include(if: $yes) ...U {text} }} }} "
                "fragment U on Change { __typename @skip(if: true) }"
            )
            try:
                operation = engine.prepare(query, None, {"yes": yes})
            except RequestRefused:
                return  # fields of one name that differ cannot be merged
            operation.open()
            for block, index in events:
                spliced = operation._make(block, index, operation.view)
                executed = operation.payload(block.change(index, operation.view))
                # Pairs and not dictionaries: the order of the fields counts too.
                made = [json.loads(text, object_pairs_hook=list) for text in (spliced, executed)]
                assert made[0] == made[1]
                compared += 1

        compare()
        assert (
            compared > 100
        )  # a few hundred: examples are drawn by what modules are loaded, and some are refused
        # All but those that select nothing were spliced.
        assert engine.executions <= engine.encodings * 1.5


def test_a_cursor_names_the_epoch_of_the_change_before_it_where_an_epoch_begins(tmp_path):
    """As the log's own token does; by the epoch a log knows the history that a cursor belongs to."""
    for number in range(3):  # each opening for writing is an epoch
        with ChangeLog.open(tmp_path / "log") as log:
            log.commit([upsert("order", str(number), {"n": number})])
            operation = Engine({"log": log}, Limits()).prepare(
                "subscription { onChange { cursor } }", None, {}
            )
            operation.open()
            events = taken(log, since=log.oldest)
            wait_until(lambda events=events, count=2 * (number + 1): len(events) == count)
            made = [json.loads(operation._make(*event, operation.view)) for event in events]
            cursors = [str(log.token(block.change(index, operation.view).after)) for block, index in events]
            assert [one["data"]["onChange"]["cursor"] for one in made] == cursors
    assert len({cursor.split(":")[1] for cursor in cursors}) == 3


def test_what_graphql_core_has_to_refuse_is_left_to_it(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        engine = Engine({"log": log}, Limits())
        ((block, _), *_) = blocks(log)
        huge = Block(
            block.columns,
            version=1,
            first_index=1,
            leads=True,
            ends=False,
            transaction_count=2**31,
            transaction_bytes=0,
            committed_at=0,
        )
        operation = engine.prepare("subscription { onChange { key count } }")
        operation.open()
        answer = json.loads(operation._make(huge, 1, operation.view))
        assert answer["data"] is None
        assert "2147483648" in answer["errors"][0]["message"]
        assert json.loads(operation._make(block, 1, operation.view))["data"]["onChange"]["key"] == "1"
