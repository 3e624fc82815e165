"""Clients that behave badly, and what becomes of the others."""

import asyncio
import itertools
import socket

import pytest

from tests.harness.constants import set_bounds
from tests.transports.resp.conftest import DEADLINE
from transports import Access, Grant, Limits, LogAction
from transports.quotas.pool import Pools
from transports.resp.client import RespClient
from transports.resp.commands import COMMANDS
from transports.resp.port import RespPort


def test_commands_are_answered_in_their_order_however_many_come_at_once(resp, stock):
    """F133: a pipeline."""
    client = stock(resp(resp_pipeline=7))
    with client.pipeline(transaction=False) as pipeline:
        for number in range(300):
            pipeline.echo(str(number))
        assert pipeline.execute() == [str(number).encode() for number in range(300)]


def test_a_command_may_come_byte_by_byte(resp, raw):
    """F133."""
    client = raw(resp())
    for byte in b"*1\r\n$4\r\nPING\r\n":
        client.write(bytes([byte]))
    assert client.line() == b"+PONG"


def test_people_may_type(resp, raw):
    """F133: commands in a line, as by netcat, which closes its side behind them."""
    client = raw(resp())
    client.write(b"PING\r\necho hi\n\r\nquit\r\nPING\r\n")
    assert client.rest() == b"+PONG\r\n$2\r\nhi\r\n+OK\r\n"


def test_what_was_asked_before_the_client_closed_its_side_is_answered(resp, raw, log, fill):
    """F133."""
    fill(1)
    client = raw(resp())
    client.send("CDCPOLL", "0", "1")
    client.send("PING")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.rest().endswith(b"+PONG\r\n")


async def test_nothing_is_waited_for_when_the_client_has_closed_its_side(resp, raw, fill, until):
    """F133: it gets what is there, and is waited for no more."""
    fill(1)
    server = resp()
    waits, comes = raw(server), raw(server)
    waits.send("CDCPOLL", "$", "1", "BLOCK", "60000")
    await until(lambda: server.figures()["waiting"] == 1, "it waits")
    waits.socket.shutdown(socket.SHUT_WR)
    assert waits.rest() == b""
    comes.socket.sendall(b"CDCPOLL $ 1 BLOCK 60000\r\n")
    comes.socket.shutdown(socket.SHUT_WR)
    assert comes.rest() in (b"*0\r\n", b"")  # the end may come while it begins to wait
    await until(lambda: server.figures()["connections"] == 0, "both are gone")


@pytest.mark.parametrize(
    "data",
    [
        b"*1\r\n*1\r\n",
        b"*1000000000\r\n",
        b"*1\r\n$999999999999\r\n",
        b"*1\r\n$4\r\nPINGxx",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01" + b"\0" * 70000,
    ],
)
def test_what_is_no_command_is_told_then_the_connection_is_closed(resp, stock, raw, data):
    """F133: as Redis does it; other clients do not notice."""
    server = resp()
    other = stock(server)
    assert other.ping()
    client = raw(server)
    client.write(b"*1\r\n$4\r\nPING\r\n" + data)
    assert client.line() == b"+PONG"
    assert client.rest().startswith(b"-ERR Protocol error: ")
    assert other.ping()
    assert server.figures()["ended"] == {"PROTOCOL_ERROR": 1}


def test_the_rest_of_a_command_has_to_come_in_time(resp, stock, raw):
    """F133: a client that says half of a command is sent away, one that says nothing is not."""
    server = resp(request_timeout=0.2)
    silent = stock(server)
    assert silent.ping()
    client = raw(server)
    client.write(b"*2\r\n$4\r\nECHO\r\n")
    assert b"did not come within 0.2 s" in client.rest()
    assert silent.ping()


async def test_a_client_that_takes_no_replies_is_cut_off_and_stops_nobody(resp, stock, raw, log, fill, until):
    """F133."""
    fill(40, body="x" * 50_000)
    server = resp(stall_timeout=0.3)
    client = raw(server)
    for _ in range(200):
        client.send("CDCPOLL", "0", "100")
    other = stock(server)
    await until(lambda: server.figures()["unsentBytes"] > 0, "the client lags")
    assert other.ping()
    await until(lambda: server.figures()["ended"].get("STALLED"), "the client is cut off")
    assert other.ping()
    assert server.figures()["unsentBytes"] == 0


def test_one_connection_too_many_is_told_so(resp, raw):
    """F133."""
    server = resp(connections=1)
    first, second = raw(server), raw(server)
    assert second.rest() == b"-ERR max number of clients reached\r\n"
    first.send("PING")
    assert first.line() == b"+PONG"


def test_a_server_that_stops_says_so_to_clients_that_wait(resp, raw, log, fill):
    """E45, F133."""
    fill(1)
    server = resp()
    client = raw(server)
    client.send("PING")
    client.send("CDCPOLL", "$", "1", "BLOCK", "60000")
    assert client.line() == b"+PONG"
    server.stop()
    assert client.rest().startswith(b"-GOING_AWAY ")


@pytest.mark.parametrize(
    "words",
    [
        ["NONSENSE"],
        ["ECHO"],
        ["PING", "a", "b"],
        ["CDCPOLL", "-1", "1"],
        ["CDCPOLL", "1" * 30, "1"],
        ["CDCPOLL", "0", "0"],
        ["CDCPOLL", "0", "1", "SIDEWAYS"],
        ["CDCPOLL", "0", "1", "BLOCK"],
        ["CDCPOLL", "0", "1", "MATCH", "us*r:1"],
        ["CDCPOLL", "0", "1", "MATCH", "user:"],
        ["SELECT", "1"],
        ["CLIENT", "KILL"],
        ["CLIENT", "SETNAME", "a b"],
        ["CLIENT", "SETINFO", "LIB-COLOR", "red"],
        ["COMMAND", "GETKEYS"],
        ["CLIENT", "SETNAME", b"\xff"],
    ],
)
def test_a_wrong_command_is_one_line_that_says_what_would_be_right(resp, raw, log, words):
    """F133: the connection goes on."""
    client = raw(resp())
    client.send(*words)
    client.send("PING")
    assert client.line().startswith(b"-ERR ")
    assert client.line() == b"+PONG"


def test_a_reply_that_cannot_be_made_ends_its_connection_and_no_other(resp, raw, stock, monkeypatch, caplog):
    """F133: a fault of the server leaves no client waiting."""
    from transports.resp import connection

    server = resp()
    other = stock(server)
    assert other.ping()

    async def broken(*_):
        raise RuntimeError("nobody expects this")

    answer = connection.answer
    monkeypatch.setattr(connection, "answer", broken)
    client = raw(server)
    client.send("PING")
    assert client.rest() == b""
    monkeypatch.setattr(connection, "answer", answer)
    assert other.ping()
    assert server.figures()["ended"] == {"INTERNAL": 1}
    assert "nobody expects this" in caplog.text


def test_pages_become_small_while_clients_take_little():
    """F133: option `resp_output_bytes`; and never so small that nothing goes on."""
    set_bounds(resp_reply_bytes=4_000_000)
    limits = Limits(resp_output_bytes=100_000_000)

    class Connection:
        unsent, address = 0, None

    def page_bytes(unsent: int) -> int:
        port, connection = RespPort({}, Access(), limits, Pools(limits)), Connection()
        connection.unsent = unsent
        port.unsent.note(connection, 99_000_000)
        return port.page_bytes

    assert [page_bytes(0), page_bytes(92_000_000)] == [4_000_000, 2_000_000]
    assert [page_bytes(99_900_000), page_bytes(200_000_000)] == [65_536, 65_536]


async def test_a_client_that_said_its_last_while_its_wait_was_prepared_is_not_waited_for():
    """F133: the wait would outlast it."""
    limits = Limits()
    port = RespPort({}, Access(), limits, Pools(limits))
    async with asyncio.timeout(DEADLINE):
        await port.wait(RespClient(1, ended=True), asyncio.Event(), asyncio.get_running_loop().time() + 3_600)
    assert port.waiting == 0


def test_what_a_client_asks_before_its_first_command_is_answered_with_what_is_true(resp, raw, stock):
    """F133: INFO, whole or by sections; ioredis waits until nothing is loading."""
    server = resp()
    told = stock(server).info()
    assert (told["server_name"], told["loading"], told["role"]) == ("penstock", 0, "master")
    assert "redis_version" not in told  # it is none
    assert stock(server).info("Persistence") == {"loading": 0}
    assert stock(server).info("keyspace") == {}
    client = raw(server)
    client.send("INFO", *["x"] * 65)
    assert client.line() == b"-ERR INFO takes at most 64 sections, not 65"


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name != "QUIT"), "NONSENSE"])
def test_no_error_shows_how_the_server_writes_bytes(resp, raw, log, name):
    """F133: an argument is shown in quotes, whichever it is."""
    client = raw(resp(authorise=Grant({LogAction.READ, LogAction.CONSUME}, groups={"*"}), resp_refusals=1000))
    wrong = [b"INFO", b"READ", b"it's", b"\xff", b"MATCH", b"0"]
    count = 0
    for first, second in itertools.product(wrong, wrong):
        for words in (
            [],
            [first],
            [first, second],
            [b"shop", b"g", b"a", first, second],
            [b"0", b"1", first, second],
        ):
            client.send(name, *words)
            count += 1
    client.send("QUIT")
    replies = client.rest()
    errors = [line for line in replies.split(b"\r\n") if line.startswith(b"-")]
    assert len(errors) > 20 or name in ("ECHO", "INFO", "PING", "COMMAND")
    assert not [line for line in errors if b" b'" in line or b' b"' in line]
