import pytest

from transports.codec.replies import Ack, CheckpointReply, Done, Failure, Goaway, Pong, read
from transports.errors import Violation


def test_every_message_of_a_server_is_read():
    assert read('{"type":"connection_ack","payload":{"server":"x"}}') == Ack({"server": "x"})
    assert read('{"type":"error","id":"a","payload":{"code":"X"}}') == Failure("a", {"code": "X"})
    assert read('{"type":"complete","id":"a","cursor":"c"}') == Done("a", "c")
    assert read('{"type":"goaway","deadlineMs":5,"reason":"r"}') == Goaway(5, "r")
    assert read('{"type":"pong","payload":{}}') == Pong({})
    checkpoint = read(
        '{"type":"checkpoint","items":[{"id":"a","cursor":"c","head":"h","state":"LIVE"}],"n":1}'
    )
    assert isinstance(checkpoint, CheckpointReply)
    assert checkpoint.items[0].state == "LIVE"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"type":"subscribe"}',
        '{"type":"next","id":"a"}',
        '"\\ud800"',
        "[" * 10_000,
        b"\xff",
    ],
)
def test_what_is_no_message_is_a_violation(text):
    with pytest.raises(Violation, match="no message"):
        read(text)
