"""``MULTI``, ``EXEC`` and ``DISCARD``, as stock clients send them: the default ``pipeline()`` of redis-py, ``multi()`` of others."""

import pytest
import redis

from publishers import upsert
from tests.transports.resp.conftest import DEADLINE
from transports import Grant, LogAction

GROUPS = Grant({LogAction.READ, LogAction.CONSUME}, groups={"*"})


@pytest.fixture
def grouped(resp, log, fill):
    """Starts a server whose log has changes, and a group that has read none of them."""

    def start(**limits):
        fill(5)
        log.groups.create("g", since="earliest")
        return resp(authorise=GROUPS, **limits)

    return start


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_default_pipeline_of_a_stock_client_keeps_all_replies(grouped, stock, protocol):
    """F133: a group read, an acknowledgement and an error among them."""
    client = stock(grouped(), protocol=protocol)
    with client.pipeline() as pipeline:
        pipeline.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 2)
        pipeline.execute_command("CDC.ACK", "shop", "none", 1 << 24)
        pipeline.ping()
        events, error, pong = pipeline.execute(raise_on_error=False)
    assert len(events) == 2
    assert isinstance(error, redis.ResponseError)
    assert "NOGROUP" in str(error)
    assert pong is True
    with client.pipeline() as pipeline:
        pipeline.execute_command("CDC.ACK", "shop", "g", *(event[0] for event in events))
        pipeline.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 10)
        acknowledged, rest = pipeline.execute()
    assert (acknowledged, len(rest)) == (2, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        ["NONSENSE"],
        ["ECHO"],
        ["WATCH", "shop"],
        ["MULTI"],
        ["HELLO", "3"],
        ["AUTH", "secret"],
        ["EXEC", "twice"],
        ["DISCARD", "some"],
        ["ECHO", "x" * 1000],
        ["CDC.ACK", "shop", "g", *["1"] * 90],
    ],
)
def test_a_transaction_with_an_error_executes_nothing(grouped, raw, log, wrong):
    """F133: whatever is wrong before EXEC, nothing is read for a client that gets no reply; then the connection goes on."""
    server = grouped(resp_command_bytes=2000, resp_arguments=100)
    client = raw(server)
    read = ("CDC.GROUP", "READ", "shop", "g", "a", "1")
    client.send("MULTI")
    client.send(*read)
    client.send("ECHO", "x" * 900)
    client.send(*wrong)
    client.send("PING")
    client.send("EXEC")
    client.send("PING")
    lines = [client.line() for _ in range(7)]
    assert lines[:3] == [b"+OK", b"+QUEUED", b"+QUEUED"]
    assert lines[3].startswith(b"-ERR ")
    assert lines[4:] == [
        b"+QUEUED",
        b"-EXECABORT Transaction discarded because of previous errors.",
        b"+PONG",
    ]
    assert log.groups.info("g").consumers == ()
    assert "CDC.GROUP" not in server.figures()["commands"]


def test_a_transaction_may_be_discarded_and_has_a_beginning(grouped, raw, log):
    """F133."""
    client = raw(grouped())
    for name in ("EXEC", "DISCARD"):
        client.send(name)
        assert client.line() == f"-ERR {name} without MULTI".encode()
    client.write(
        b"MULTI\r\nCDC.GROUP READ shop g a 1\r\nDISCARD\r\nEXEC\r\nMULTI\r\nEXEC\r\nMULTI\r\nQUIT\r\n"
    )
    assert client.rest() == b"+OK\r\n+QUEUED\r\n+OK\r\n-ERR EXEC without MULTI\r\n+OK\r\n*0\r\n+OK\r\n+OK\r\n"
    assert log.groups.info("g").consumers == ()


def test_a_command_of_a_transaction_does_not_wait(resp, stock, log):
    """F133: as in Redis; else those behind it would wait too."""
    log.groups.create("g", since="latest")
    client = stock(resp(authorise=GROUPS), socket_timeout=DEADLINE)
    with client.pipeline() as pipeline:
        pipeline.execute_command("CDCPOLL", "$", 1, "BLOCK", 3_600_000)
        pipeline.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 1, "BLOCK", 3_600_000)
        assert pipeline.execute() == [[], []]


async def test_replies_of_a_transaction_wait_for_a_client_that_takes_none(grouped, raw, log, until):
    """F133: they are not made ahead of it, however many they are."""
    log.commit([upsert("order", str(number), {"x": "x" * 50_000}) for number in range(40)])
    server = grouped(stall_timeout=0.3)
    client = raw(server)
    client.send("MULTI")
    client.send("CDCPOLL", "0", "100", times=100)
    client.send("EXEC")
    await until(lambda: server.figures()["ended"].get("STALLED"), "the client is cut off")
    assert server.figures()["commands"]["CDCPOLL"] < 20


async def test_kept_commands_count_as_unfinished(resp, raw, stock, until):
    """F133: option `resp_input_bytes`; the connection that holds most is closed."""
    server = resp(resp_input_bytes=100_000)
    modest = raw(server)
    modest.send("MULTI")
    modest.send("ECHO", "x" * 1000)
    await until(lambda: server.figures()["unfinishedBytes"] > 1000, "it counts")
    client = raw(server)
    client.send("MULTI")
    client.send("ECHO", "x" * 1000, times=100)
    assert client.rest().count(b"+QUEUED") <= 100
    await until(lambda: server.figures()["ended"] == {"OVERLOAD": 1}, "it has to go")
    modest.send("EXEC")
    assert modest.read(len(b"+OK\r\n+QUEUED\r\n*1\r\n$1000\r\n")) == b"+OK\r\n+QUEUED\r\n*1\r\n$1000\r\n"
    modest.read(1002)
    await until(lambda: server.figures()["unfinishedBytes"] == 0, "nothing is kept any more")
