"""Globs over bytes: the same as an equal regular expression, in bounded time."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from publishers.criteria.globs import glob_gram, glob_head, glob_matcher, glob_tail


def plain_glob(glob, key):
    pattern = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)
    return re.fullmatch(pattern.encode("utf-8", "surrogateescape"), key, re.DOTALL) is not None


keys = st.text("abü", max_size=10).map(str.encode) | st.binary(max_size=6)
globs = st.text("ab*?ü", max_size=10) | st.binary(max_size=6).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


@given(globs, keys)
@example("ab*ba", b"aba")
@example("ü*ü", "ü".encode())
def test_a_glob_matches_what_the_equal_regular_expression_matches(glob, key):
    """F56: over bytes, also where they are not UTF-8."""
    assert glob_matcher(glob)(key) is plain_glob(glob, key)


@given(globs, keys)
def test_head_tail_and_gram_are_in_every_key_that_matches(glob, key):
    """F56, E18: an index may look them up instead of asking the glob."""
    head, proves = glob_head(glob)
    tail, tail_proves = glob_tail(glob)
    gram = glob_gram(glob)
    if glob_matcher(glob)(key):
        assert key.startswith(head)
        assert key.endswith(tail)
        assert gram in key
    if proves:
        assert glob_matcher(glob)(head + key)
    if tail_proves:
        assert glob_matcher(glob)(key + tail)


@given(st.binary(max_size=8))
def test_globs_take_keys_that_are_not_utf_8(key):
    """F56: a question mark is one byte."""
    assert glob_matcher("*")(key)
    assert glob_matcher("?" * len(key))(key)
    assert not glob_matcher("?" * (len(key) + 1))(key)
    text = key.decode("utf-8", "surrogateescape")
    if not set(text) & set("*?"):
        assert glob_matcher(text)(key)
        assert glob_matcher(text + "*")(key + b"\xff\x00")


@pytest.mark.parametrize(
    ("glob", "key"),
    [
        ("*a" * 500, b"a" * 499 + b"b" * 1000),
        ("a*" * 500 + "b", b"a" * 5000),
        ("*" * 1000 + "b", b"a" * 5000),
        ("*?" * 500, b"a" * 499),
        ("?*" * 500 + "b", b"a" * 5000),
    ],
)
def test_hostile_globs_end_soon(glob, key):
    """F56: at worst key times pattern steps, where a naive matcher needs more than the age of the universe."""
    assert not glob_matcher(glob)(key)


@pytest.mark.parametrize("glob", ["*a?a" * 250, "?*" * 500 + "b", "*" + "a?" * 400 + "*b", "a*" * 500])
def test_a_glob_reads_each_byte_of_a_key_once(glob):
    """F147: whatever the glob, as many steps as the key has bytes, where going back costs key times pattern."""

    class Read(bytes):
        """A key that counts its bytes as they are read."""

        steps = 0

        def __iter__(self):
            for byte in super().__iter__():
                Read.steps += 1
                yield byte

        def __getitem__(self, place):
            Read.steps += 1
            return super().__getitem__(place)

    glob_matcher(glob)(Read(b"a" * 1_024))
    assert Read.steps <= 1_024
