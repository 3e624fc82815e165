"""Whatever is passed to the public face, the answer is a value or an error of ours that names what was wrong."""

import inspect
import math
from array import array
from datetime import UTC, datetime

import pytest

from flow.executors import INLINE
from penstock_cdc import fields, mutations
from penstock_cdc.errors import InvalidChange, InvalidCriteria, InvalidOption, PenstockError
from penstock_cdc.fields import FieldChange, apply_field, field_value
from penstock_cdc.mutations import copied
from penstock_cdc.types import Columns, LogLinks, PositionToken, Projection
from publishers import (
    Action,
    ChangeLog,
    ChangeStore,
    Content,
    Criteria,
    Criterion,
    Images,
    LogOptions,
    Mask,
    Mutation,
    Position,
    View,
    Where,
    upsert,
)
from publishers.wal import Column
from tests.publishers.support import QUICK, Probe, opened

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ROW = upsert("a", "1", {"n": 1})


class Odd:
    """Something that nobody expects."""

    def __repr__(self):
        return "<odd>"


WRONG = (
    *(None, True, -1, 0, 5, 2**70, 1.5, math.nan, "", "x", "\ud800", "a" * 5000, b"", b"x", int, Odd()),
    *([], (), {}, [None], [1], ("a",), {"a": 1}, {1: 2}, lambda: 1),
)
ENTITY = {"entity_type": "a", "meta": None, "origin": None}
KEYED = {**ENTITY, "key": "1", "before": None, "schema_version": None, "entry_version": None}
WRITTEN = {"body": {"n": 1}, "changed": None, "expires_at": MOMENT}
SEEN = {"content": Content.BODY, "images": Images.ALL, "fields": None, "mask": None, "integers": "NUMBER"}
COMMIT = {"meta": None, "producer": None, "durable": False, "visible": True}
MUTATION = {"operation": 1, "entity_type": "a", "key": b"1", "area": 1, "follows": ()} | dict.fromkeys(
    ("body", "before", "changed", "meta")
)


def subscribed(log, wishes=None, **more):
    feed = log.changes(wishes, **more)
    probe = Probe(10)
    feed.subscribe(probe, executor=INLINE)
    feed.close()
    if probe.error is not None:
        raise probe.error


def transaction(log, **more):
    with log.transaction(**more) as tx:
        tx.upsert("a", "1", {})


def method(name):
    return lambda log, **more: getattr(log, name)(**more)


def change_of(log):
    return log.history(content=Content.BODY, limit=2).changes[1]


FUNCTIONS = {
    "upsert": KEYED | WRITTEN | {"changes": None},
    "remove": KEYED,
    "expire": KEYED | {"expires_at": MOMENT},
    "truncate": ENTITY | {"schema_version": None},
    "rekey": {name: value for name, value in (KEYED | WRITTEN).items() if name != "key"}
    | {"old": "1", "new": "2"},
    "schema": ENTITY | {"body": {}, "version": None, "part": "entity", "before": None, "changed": None},
    "set_field": {"path": "a", "value": 1, "before": 1},
    "remove_field": {"path": "a", "before": 1},
    "push": {"path": "a", "value": 1},
    "add": {"path": "a", "value": 1},
    "discard": {"path": "a", "value": 1},
    "changed_fields": {"before": {}, "after": {}},
    "field_changes": {"before": {}, "after": {}},
}
MADE = {
    "FieldChange": (FieldChange, {"path": ("a",), "action": Action.SET, "value": b"1", "before": None}),
    "Criterion": (Criterion, dict.fromkeys(Criterion.__dataclass_fields__, ())),
    "Criteria": (Criteria, {"criterions": frozenset()}),
    "Criteria.of": (lambda one: Criteria.of(one, None), {"one": None}),
    "Criteria.from_json": (Criteria.from_json, {"wishes": []}),
    "Where": (Where, {"path": "a", "comparison": "EQ", "value": 1, "image": "AFTER"}),
    "View": (View, {"content": Content.BODY, "images": Images.ALL, "lenses": (), "integers": "TEXT"}),
    "View.of": (View.of, SEEN),
    "View.within": (View().within, {"widest": View()}),
    "Projection.of": (Projection.of, {"paths": ["a"]}),
    "Mask.of": (Mask.of, {"rules": {"a": "x"}}),
    "Mask.of a rule": (lambda rule: Mask.of({"a": rule}), {"rule": "x"}),
    "PositionToken.parse": (PositionToken.parse, {"text": "x"}),
}
ON_A_LOG = {
    "changes": (subscribed, {"wishes": None, "since": None, "until": None, "whole": False, "on_gap": "fail", "view": None, "as_": None} | SEEN),
    "history": (method("history"), {"criteria": None, "since": None, "limit": 10, "reverse": False, "view": None} | SEEN),
    "commit": (method("commit"), {"mutations": [ROW], **COMMIT}),
    "commit of one": (lambda log, row: log.commit([row]), {"row": ROW}),
    "commit of two": (lambda log, row: log.commit([row, row]), {"row": ROW}),
    "commit of a mutation": (lambda log, **fields: log.commit([Mutation(**fields)]), MUTATION),
    "commit of two mutations": (lambda log, **fields: log.commit([Mutation(**fields)] * 2), MUTATION),
    "commit by name": (lambda log, name: log.commit([ROW], producer=(name, 1)), {"name": "etl"}),
    "commit by number": (lambda log, number: log.commit([ROW], producer=("x", number)), {"number": 1}),
    "transaction": (transaction, COMMIT),
    "commit_columns": (method("commit_columns"), {"batches": [], **COMMIT}),
    "produced": (method("produced"), {"producer": "etl"}),
    "schema": (method("schema"), {"entity_type": "a", "version": None}),
    "publish": (method("publish"), {"version": 1}),
    "forget_after": (method("forget_after"), {"version": 1}),
    "token": (method("token"), {"position": Position(1)}),
    "position_of": (method("position_of"), {"token": "x"}),
    "position_at": (method("position_at"), {"moment": MOMENT}),
    "time_of": (method("time_of"), {"position": 1}),
    "idempotency_key": (method("idempotency_key"), {"change": None}),
    "unsubscribe": (method("unsubscribe"), {"subscription_id": 1}),
    "pause": (method("pause"), {"subscription_id": 1}),
    "resume": (method("resume"), {"subscription_id": 1}),
    "seek": (method("seek"), {"subscription_id": 1, "since": "latest"}),
    "hold": (method("hold"), {"name": "h", "position": None, "keep_bytes": None, "keep_age": None}),
    "links.add": (lambda log, consumer: log.links.add(consumer), {"consumer": "x"}),
    "links.release": (lambda log, position: log.links.release(position), {"position": Position(1)}),
    "partition": (lambda log, partitions: change_of(log).partition(partitions), {"partitions": 3}),
    "copied": (lambda log, change: copied(change), {"change": None}),
    "field_value": (lambda log, change: field_value(change), {"change": None}),
    "apply_field": (lambda log, change: apply_field({}, change), {"change": None}),
}  # fmt: skip


def survives(call, usual):
    """Tries each argument with everything that is wrong; whatever else is raised fails the test."""
    for parameter in usual:
        for value in WRONG:
            try:
                call(**{**usual, parameter: value})
            except (PenstockError, OSError):
                continue
            except Exception as error:
                raise AssertionError(f"{parameter}={value!r:.40}") from error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_make_mutations(name):
    survives(getattr(mutations if hasattr(mutations, name) else fields, name), FUNCTIONS[name])


@pytest.mark.parametrize("name", MADE)
def test_criteria_views_and_the_like(name):
    survives(*MADE[name])


@pytest.mark.parametrize("name", ON_A_LOG)
def test_methods_of_a_log(name):
    call, usual = ON_A_LOG[name]
    with opened() as log:
        log.commit([ROW])
        survives(lambda **given: call(log, **given), usual)
        assert all(change.error is None for change in log.history(limit=1).changes)


def test_opening_a_log_or_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a path may be any text

    def shut(opening):
        opening.close()

    usual = {
        "path": tmp_path / "log",
        "read_only": False,
        "consumer": None,
        "options": None,
        "filesystem": None,
    }
    survives(lambda **given: shut(ChangeLog.open(**{"path": tmp_path / "log", **QUICK, **given})), usual)
    with pytest.raises(InvalidOption, match="clock"):
        ChangeLog.open(tmp_path / "log", clock=None)
    survives(
        lambda **given: shut(ChangeStore.open(**given)), {"path": tmp_path / "store", "read_only": False}
    )
    with ChangeStore.open(tmp_path / "store") as store:
        assert [] not in store
        survives(store.create, {"name": "n", "type": None, "labels": None})
        survives(store.drop, {"name": "n"})
        survives(store.log, {"name": "n"})


@pytest.mark.parametrize("option", LogOptions.__dataclass_fields__)
def test_options(option):
    survives(LogOptions, {option: getattr(LogOptions(), option)})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda log: log.changes(since=0),
            InvalidOption,
            "since is 0, but must be a version, the first of which is 1",
        ),
        (
            lambda log: log.changes(since=Position(-1)),
            InvalidOption,
            "since.version is -1, but must be a whole number",
        ),
        (lambda log: log.changes(since=Position(1, None)), InvalidOption, "since.index is None"),
        (lambda log: log.changes(view="BODY"), InvalidOption, "view is 'BODY', but must be what View.of"),
        (lambda log: log.changes(whole="no"), InvalidOption, "whole is 'no', but must be True or False"),
        (lambda log: log.produced(5), InvalidChange, "producer is 5, but must be a name or a UUID"),
        (lambda log: log.commit(None), InvalidChange, "mutations is None, but must be a list of them"),
        (lambda log: log.commit("ab"), InvalidChange, "mutations is 'ab', but must be a list of them"),
        (lambda log: log.commit({}), InvalidChange, "mutations is {}"),
        (
            lambda log: log.commit([ROW], visible=None),
            InvalidOption,
            "visible is None, but must be True or False",
        ),
        (lambda log: log.commit([Mutation(99, "a", b"1")]), InvalidChange, "operation is '99 in area 1'"),
        (lambda log: log.commit([Mutation(1, "a", "1")] * 2), InvalidChange, "key is '1', but must be bytes"),
        (lambda log: log.commit_columns([ROW]), InvalidChange, "batches is Mutation"),
        (
            lambda log: ChangeLog.open(log.path, options=5),
            InvalidOption,
            "options is 5, but must be LogOptions",
        ),
        (lambda log: ChangeLog.open(5), InvalidOption, "path is 5, but must be the path of a directory"),
        (
            lambda log: upsert("a", "1", {}, changed=5),
            InvalidChange,
            "changed is 5, but must be a list of field names",
        ),
        (lambda log: Criteria(5), InvalidCriteria, "criteria is 5"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(call, error, text):
    with opened() as log, pytest.raises(error) as refused:
        call(log)
    assert text in str(refused.value)


def test_names_of_fields_may_come_one_by_one():
    """They were gone through twice once, and nothing was left the second time."""
    assert upsert("a", "1", {}, changed=(name for name in ["x", "y"])).changed == b'["x","y"]'


def test_columns_of_an_unknown_kind_never_reach_a_reader():
    with opened() as log:
        columns = Columns(memoryview(array("B", [7])), ("a",), None, Column.of([b"1"]))
        with pytest.raises(InvalidChange, match="kinds is 7"):
            log.commit_columns([columns])
        assert log.head == Position(1)


def test_what_the_documents_name_has_a_public_name():
    with opened() as log:
        assert isinstance(log.links, LogLinks)
    assert inspect.isclass(Columns)
