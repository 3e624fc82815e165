"""Commands out of bytes, however these are cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transports.resp.parser import CommandParser, RespViolation

MOST, ARGUMENTS = 200, 6


def packed(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def parsed(pieces):
    """What comes out of some pieces: commands, and how it ended."""
    parser = CommandParser(MOST, ARGUMENTS)
    found = []
    for piece in pieces:
        parser.feed(piece)
        try:
            while (command := parser.next()) is not None:
                found.append(command)
        except RespViolation as error:
            return found, str(error)
    return found, parser.within


def cut(data, places):
    places = sorted({min(place, len(data)) for place in places})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


WORDS = st.lists(st.binary(max_size=20), min_size=1, max_size=ARGUMENTS)
PIECES = st.one_of(
    WORDS.map(packed),
    st.sampled_from(
        [
            b"PING\r\n",
            b"echo  hi\n",
            b"\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*1\r\n",
            b"$4\r\n",
            b"$-1\r\n",
            b"*9\r\n",
            b"POST / HTTP/1.1\r\n",
        ]
    ),
    st.binary(max_size=12),
    st.text("*$\r\n0123456789+-:", max_size=12).map(str.encode),
    st.integers(30, 260).map(lambda count: b"x" * count),
)
STREAMS = st.lists(PIECES, max_size=5).map(b"".join)


@given(STREAMS, st.lists(st.integers(0, 400), max_size=12))
@example(b"*1\r\n$4\r\nPING\r\n" * 2, list(range(28)))
@example(b"PING\r\n*1\r", [5, 9])
@example(b"*" + b"1" * 40, [31, 32, 33])
def test_any_split_of_bytes_gives_the_same_commands_and_the_same_end(data, places):
    """F133."""
    whole = parsed([data])
    assert parsed(cut(data, places)) == whole
    assert parsed(data[at : at + 1] for at in range(len(data))) == whole


@given(st.lists(WORDS, max_size=5))
def test_commands_come_out_as_they_were_sent(commands):
    """F133."""
    fitting = [one for one in commands if sum(map(len, one)) + 16 * len(one) <= MOST]
    assert parsed([b"".join(map(packed, fitting))]) == (fitting, False)


@given(STREAMS)
def test_what_is_held_is_bounded_whatever_comes(data):
    """F133: by one command, and what is fed at once."""
    parser = CommandParser(MOST, ARGUMENTS)
    for at in range(len(data)):
        parser.feed(data[at : at + 1])
        try:
            while parser.next() is not None:
                pass
        except RespViolation:
            assert parser.held == 0
            return
        assert parser.held <= 2 * MOST + 64


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*7\r\n", "more than 6 arguments"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGPONG", "no end of a line behind it"),
        (b"*1\r\n$1000000000\r\n", "up to 200 bytes"),
        (b"*2\r\n$100\r\n" + b"x" * 100 + b"\r\n$100\r\n", "up to 200 bytes"),
        (b"*" + b"1" * 100, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 100, "too big bulk count string"),
        (b"x" * 300, "too big inline request"),
        (b"a b c d e f g\r\n", "too big inline request"),
        (b'set "a b\r\n', "quotes"),
        (b"POST /changes HTTP/1.1\r\n", "not of HTTP"),
        (b"Host: localhost\r\n", "not of HTTP"),
    ],
)
def test_what_is_no_command_is_told_and_nothing_behind_it_is_read(data, why):
    """F133."""
    parser = CommandParser(MOST, ARGUMENTS)
    parser.feed(data)
    for _ in range(2):
        with pytest.raises(RespViolation, match=f".*{why.replace('$', '[$]').replace('*', '[*]')}"):
            parser.next()
        parser.feed(packed([b"PING"]))
    assert parser.held == 0
    assert not parser.within


@pytest.mark.parametrize("empty", [b"\r\n", b"\n", b"*0\r\n", b"\r\n*0\r\n\n"])
def test_a_hundred_empty_commands_cost_one_step(empty):
    """F147: what asks for nothing is dropped at once, so that nothing of it is left when the client has gone."""
    parser = CommandParser(1_000_000, 10)
    parser.steps = 1_500
    parser.feed(empty * 60_000 + b"PING\r\n")
    assert parser.next() == [b"PING"]
    assert parser.steps > 0
    parser.feed(b"\r")
    assert parser.next() is None
    parser.feed(b"\n*0")
    assert parser.next() is None
    parser.feed(b"\r\n*-1\r\n \r\nECHO\r\n")
    assert parser.next() == [b"ECHO"]
    assert parser.held == 0
