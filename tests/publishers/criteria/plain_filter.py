"""Random wishes and blocks, and a filter without any cleverness to compare with."""

import json
import re
from decimal import Decimal

from hypothesis import strategies as st

from publishers import Area, Criterion, Operation
from publishers.blocks.block import Block
from publishers.criteria.conditions import Comparison, Where
from publishers.mutations.mutation import Mutation, columns_of

TYPES = ["order", "orders", "person"]  # one begins like another one
KEYS = ["", "a", "b", "ab", "ba", "aab", "ü", "\udc80"]
GLOBS = ["*", "a*", "*b", "a*b", "?", "a?b", "*a*", "??", "", "ü*", "ab*"]
PATTERNS = ["a+b?", ".*", "ab|b", "[^a]*", "a.*", "", "ü"]
NAMES = ["quantity", "quantityOnStock", "price", "a.b"]
BODIES = [
    None,
    b"{}",
    b'{"n":1}',
    b'{"n":1.0}',
    b'{"n":"1"}',
    b'{"n":true}',
    b'{"n":null}',
    b'{"n":[1]}',
    b'{"n":{"m":2.5}}',
    b'{"n":9007199254740993}',
    b'{"n":2,"m":"ab"}',
    b"[1,2]",
    b"nonsense",
]
TOLD = [None, b"{}", b'{"m":"ab"}', b'{"n":1}', b'{"n":2,"m":"ab"}', b"[1]"]
"""Annotations of transactions."""
CHANGED = [None, b"[]", b'["quantity"]', b'["quantityOnStock","price"]', b'["a.b","quantity"]', b"{}", b"[1]"]


def row(
    area=Area.DATA, operation=Operation.UPSERT, kind="order", key="42", body=None, before=None, changed=None
):
    return Mutation(
        int(operation),
        kind,
        key.encode("utf-8", "surrogateescape"),
        body,
        before,
        changed,
        None,
        int(area),
    )


def block(rows, *, leads=True, first_index=1, told=None):
    return Block(
        columns_of(rows),
        version=1,
        first_index=first_index,
        leads=leads,
        ends=True,
        transaction_count=first_index + len(rows),
        transaction_bytes=1,
        committed_at=0,
        annotations=b"" if told is None else b'{"id":"t","meta":%s}' % told,
    )


rows_of = st.lists(
    st.builds(
        row,
        area=st.sampled_from([Area.DATA, Area.SCHEMA]),
        operation=st.sampled_from([Operation.UPSERT, Operation.REMOVE, Operation.TRUNCATE]),
        kind=st.sampled_from(TYPES),
        key=st.sampled_from(KEYS),
        body=st.sampled_from(BODIES),
        before=st.sampled_from(BODIES),
        changed=st.sampled_from(CHANGED),
    ),
    max_size=10,
)
values = st.sampled_from([1, 2, "1", "ab", True, None, 2.5, 9007199254740992, 9007199254740993])
wheres = st.one_of(
    st.builds(
        Where,
        st.sampled_from(["n", "m", "n.m", "0"]),
        st.sampled_from(["==", "!="]),
        values,
        image=st.sampled_from(["AFTER", "BEFORE"]),
    ),
    st.builds(Where, st.sampled_from(["n", "m"]), st.just("in"), st.lists(values, min_size=1, max_size=3)),
    st.builds(Where, st.sampled_from(["n", "m"]), st.sampled_from(["<", "<=", ">", ">="]), st.integers(0, 3)),
    st.builds(Where, st.sampled_from(["n", "m"]), st.sampled_from(["exists", "is null"]), st.booleans()),
    st.builds(Where, st.sampled_from(["n", "m"]), st.just("prefix"), st.sampled_from(["", "a", "1"])),
)
told_of = st.sampled_from(TOLD)
after_wheres = wheres.filter(lambda one: one.image.name == "AFTER")


def _some(values, most=2):
    # Mostly left out, so that wishes match something.
    return st.just(()) | st.sets(st.sampled_from(values), max_size=most)


_common = {
    "areas": _some([Area.DATA, Area.SCHEMA]),
    "entity_types": _some([*TYPES, "other"]),
    "keys": _some(KEYS),
    "key_globs": _some(GLOBS),
    "key_patterns": _some(PATTERNS),
    "operations": _some([Operation.UPSERT, Operation.REMOVE]),
    "changed": _some([*NAMES, "quant"]),
    "annotations": st.just(()) | st.lists(wheres.filter(lambda one: one.image.name == "AFTER"), max_size=2),
}
criterions = st.one_of(
    st.builds(Criterion, **_common),
    st.builds(Criterion, **_common, where=st.lists(wheres, max_size=2)),
    st.builds(
        Criterion,
        **_common,
        where=st.lists(after_wheres, min_size=1, max_size=2),
        transitions=st.sets(st.sampled_from(["ENTERED", "LEFT", "STAYED", "MAYBE_LEFT"]), max_size=3),
    ),
    st.just(Criterion(areas={Area.INFRASTRUCTURE})),
)


def plain_glob(glob, key):
    pattern = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)
    return re.fullmatch(pattern.encode("utf-8", "surrogateescape"), key, re.DOTALL) is not None


def _image(stored):
    try:
        return [json.loads(stored, parse_float=Decimal)]
    except (TypeError, ValueError):
        return []


def _names(stored):
    names = _image(stored)
    good = names and isinstance(names[0], list) and all(isinstance(name, str) for name in names[0])
    return set(names[0]) if good else set()


def _condition(where, image):  # noqa: C901 - a plain list of what each comparison means
    if not image:
        return False
    value, there = image[0], True
    for name in where.path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            there = False
            break
    how, wanted = where.comparison, where.value
    if how is Comparison.EXISTS:
        return there is wanted
    if not there:
        return False

    def same(one, other):
        return isinstance(one, bool) == isinstance(other, bool) and one == other

    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    bound = isinstance(wanted, (int, Decimal)) and not isinstance(wanted, bool)
    ordered = (number and bound) or (isinstance(value, str) and isinstance(wanted, str))
    match how:
        case Comparison.EQ:
            return same(value, wanted)
        case Comparison.NE:
            return not same(value, wanted)
        case Comparison.IN:
            return any(same(value, one) for one in wanted)
        case Comparison.IS_NULL:
            return (value is None) is wanted
        case Comparison.PREFIX:
            return isinstance(value, str) and value.startswith(wanted)
        case Comparison.LT:
            return ordered and value < wanted
        case Comparison.LE:
            return ordered and value <= wanted
        case Comparison.GT:
            return ordered and value > wanted
        case Comparison.GE:
            return ordered and value >= wanted


def _filter(criterion, one):
    if not criterion.where:
        return True
    after, before = _image(one.body), _image(one.before)
    if not criterion.transitions:
        return all(
            _condition(where, after if where.image.name == "AFTER" else before) for where in criterion.where
        )
    was = all(_condition(where, before) for where in criterion.where)
    now = all(_condition(where, after) for where in criterion.where)
    move = {(False, True): "ENTERED", (True, False): "LEFT", (True, True): "STAYED"}.get((was, now))
    if not now and not before:
        move = "MAYBE_LEFT"
    return move in {transition.name for transition in criterion.transitions}


def _passes(criterion, told):
    document = _image(told) or [{}]
    return all(_condition(where, document) for where in criterion.annotations)


def fulfils(criterion, one, told=None):
    key = one.key.decode("utf-8", "surrogateescape")
    keyed = criterion.keys or criterion.key_globs or criterion.key_patterns
    if keyed and (one.area, one.operation) == (Area.DATA, Operation.TRUNCATE):
        return False
    return (
        (not criterion.areas or one.area in criterion.areas)
        and (not criterion.operations or one.operation in criterion.operations)
        and (not criterion.entity_types or one.entity_type in criterion.entity_types)
        and (not criterion.keys or key in criterion.keys)
        and (not criterion.key_globs or any(plain_glob(glob, one.key) for glob in criterion.key_globs))
        and (
            not criterion.key_patterns
            or any(re.fullmatch(pattern, key, re.DOTALL) for pattern in criterion.key_patterns)
        )
        and (not criterion.changed or bool(criterion.changed & _names(one.changed)))
        and _filter(criterion, one)
        and _passes(criterion, told)
        and (not criterion.also or any(fulfils(other, one, told) for other in criterion.also))
    )


def plain(criteria, rows, *, leads=True, first_index=1, told=None):
    """What a filter without any cleverness finds."""
    found = []
    if leads and any(
        not (c.entity_types or c.keys or c.key_globs or c.key_patterns or c.changed or c.where)
        and (not c.areas or Area.INFRASTRUCTURE in c.areas)
        and (not c.operations or Operation.TRANSACTION in c.operations)
        and _passes(c, told)
        for c in criteria.criterions
    ):
        found.append(0)
    return found + [
        first_index + place
        for place, one in enumerate(rows)
        if any(fulfils(criterion, one, told) for criterion in criteria.criterions)
    ]


def alone(name):
    """Criterions that ask for one field only, so that each example depends on it."""
    return st.builds(Criterion, **{name: _common[name]})


FIELDS = sorted(_common)
