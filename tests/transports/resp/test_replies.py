"""Replies, in both versions of the protocol."""

import pytest

from transports.resp.replies import Encoded, RespError, SimpleString, encode_reply


@pytest.mark.parametrize(
    ("reply", "second", "third"),
    [
        (None, b"$-1\r\n", b"_\r\n"),
        (True, b":1\r\n", b"#t\r\n"),
        (False, b":0\r\n", b"#f\r\n"),
        (-7, b":-7\r\n", b":-7\r\n"),
        (SimpleString("OK"), b"+OK\r\n", b"+OK\r\n"),
        (RespError("ERR", "no\r\nway"), b"-ERR no  way\r\n", b"-ERR no  way\r\n"),
        ("é", b"$2\r\n\xc3\xa9\r\n", b"$2\r\n\xc3\xa9\r\n"),
        (b"\xff", b"$1\r\n\xff\r\n", b"$1\r\n\xff\r\n"),
        ("\udcff", b"$1\r\n\xff\r\n", b"$1\r\n\xff\r\n"),
        ({"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        ([[], (1,)], b"*2\r\n*0\r\n*1\r\n:1\r\n", b"*2\r\n*0\r\n*1\r\n:1\r\n"),
        ([Encoded(b":5\r\n")], b"*1\r\n:5\r\n", b"*1\r\n:5\r\n"),
    ],
)
def test_a_reply_is_written_as_the_specification_says(reply, second, third):
    """F133."""
    assert (encode_reply(reply, 2), encode_reply(reply, 3)) == (second, third)
