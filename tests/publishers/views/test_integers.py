"""Whole numbers that JavaScript would round, as text for those who ask for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.executors import INLINE
from penstock_cdc.errors import InvalidOption
from penstock_cdc.mutations import schema
from publishers import Content, Hash, Images, Integers, Position, View, upsert
from publishers.lossless import text_integers
from tests.publishers.support import Probe, opened, wait_until

EDGE = 2**53
whole = st.integers() | st.sampled_from([sign * (EDGE + by) for sign in (1, -1) for by in (-1, 0, 1)])
values = st.recursive(
    st.none()
    | st.booleans()
    | whole
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def texts(value):
    """What is to be told of a value."""
    match value:
        case bool() | None:
            return value
        case int():
            return str(value) if abs(value) > EDGE else value
        case list():
            return [texts(item) for item in value]
        case dict():
            return {name: texts(item) for name, item in value.items()}
        case _:
            return value


@given(values, st.booleans())
def test_only_whole_numbers_beyond_2_53_become_text(value, spaced):
    """F24: at every depth, in JSON however it is written."""
    data = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced).encode(
        "utf-8", "surrogatepass"
    )
    assert json.loads(text_integers(data)) == texts(value)


def test_everything_else_stays_byte_for_byte():
    """F24: spaces, names that occur twice, digits of fractions, escapes, and numbers of any length."""
    kept = rb'{ "1234567890123456789" : 1.50, "a": "9007199254740993\\\" 9007199254740993", "a":1e400, "\ud800":-0}'
    assert text_integers(kept) == kept
    assert text_integers(kept + b" ") == kept + b" "
    digits = b"9" * 10_000
    assert text_integers(b"[-%b,%b.5,%be3]" % (digits, digits, digits)) == b'["-%b",%b.5,%be3]' % (
        digits,
        digits,
        digits,
    )


@pytest.mark.parametrize("images", list(Images))
def test_every_image_mode_tells_them_as_text(images):
    """F24: what is shown is that of the same view with numbers, but for them."""
    with opened() as log:
        log.commit(
            [
                schema("a", {"largest": 2**63 - 1}),
                upsert(
                    "a", "1", {"n": EDGE + 1, "m": 1}, before={"n": -EDGE - 1, "m": 1}, meta={"x": 10**30}
                ),
            ],
            meta={"run": 2**60},
        )
        numbers = log.history(content=Content.BODY, images=images).changes
        told = log.history(content=Content.BODY, images=images, integers=Integers.TEXT).changes
        for one, other in zip(numbers, told, strict=True):
            assert (other.body, other.before) == (texts(one.body), texts(one.before))
            assert (other.meta, other.changed, other.lacking) == (texts(one.meta), one.changed, one.lacking)
    assert told[0].meta == {"run": str(2**60)}


def test_masks_come_first():
    """F24, F59: a hash is that of the number, and what is dropped stays dropped."""
    mask = {"n": Hash("a key of sixteen bytes or more")}
    with opened() as log:
        log.commit([upsert("a", "1", {"n": EDGE + 1, "m": EDGE + 1})])
        one, other = (
            log.history(since=Position(1, 1), content=Content.BODY, mask=mask, integers=kind).changes[0].body
            for kind in Integers
        )
    assert (other["n"], other["m"]) == (one["n"], str(one["m"]))


def test_it_is_part_of_what_is_shared():
    """F24: two views of one publisher, each with objects of its own."""
    with opened() as log:
        feeds = [log.changes(content=Content.BODY, integers=kind) for kind in Integers]
        probes = [Probe(10) for _ in feeds]
        for feed, probe in zip(feeds, probes, strict=True):
            feed.subscribe(probe, executor=INLINE)
        log.commit([upsert("a", "1", {"n": EDGE + 1})])
        wait_until(lambda: all(len(probe.changes) == 2 for probe in probes))
        assert [probe.changes[1].body for probe in probes] == [{"n": EDGE + 1}, {"n": str(EDGE + 1)}]
        assert len(log.statistics().publishers) == 1


def test_a_view_is_narrowed_to_text_if_either_wants_it():
    """F24."""
    text, number = View.of(Content.BODY, integers="TEXT"), View.of(Content.BODY)
    assert text.within(number) == number.within(text) == text.within(text) == text != number
    assert number.within(number) == number
    assert not text.plain
    with pytest.raises(InvalidOption, match="integers is 'text', but must be one of NUMBER, TEXT"):
        View.of(integers="text")
