"""A Redis protocol port that is attacked, beside a client that means well: turns, bytes of the server, and whom they cost."""

import threading

import pytest

from penstock_cdc.types import Start
from tests.harness.scale import LONG
from tests.transports.resp.conftest import raw, resp, stock  # noqa: F401 - fixtures of the neighbours
from transports import Grant, LogAction
from transports.access.access import EVERYBODY
from transports.resp.commands import COMMANDS

TURN = 12_000
"""Most calls in one turn of the event loop, whatever clients send."""
MANY = 9_990 if LONG else 2_000
BLANKS = {
    "blank lines": b"\r\n",
    "ends of lines": b"\n",
    "lines of spaces": b"  \r\n",
    "commands without words": b"*0\r\n",
    "commands of less": b"*-1\r\n",
}
WORDS = {
    "of no meaning": [b"x", b"x"],
    "commands": [b"INFO", b"PING"],
    "commands to describe": [b"DOCS", b"PING"],
    "numbers": [b"1", b"1"],
    "nothing": [b"", b""],
}
GROUPS = {
    "CDC.ACK": (b"shop", b"g"),
    "CDC.NACK": (b"shop", b"g", b"a"),
    "CDC.CLAIM": (b"shop", b"g", b"a", b"0"),
}
CLOSING = {"QUIT"}


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in words)


def of_many_words():
    for name in sorted(COMMANDS.keys() - CLOSING):
        for first, rest in WORDS.values():
            before = [name.encode(), *GROUPS.get(name, ())]
            yield command(*before, first, *[rest] * (MANY - len(before)))


FLOODS = {
    **{name: [blank * (20 * MANY // len(blank))] for name, blank in BLANKS.items()},
    "commands of many words": [*of_many_words()],
}


@pytest.fixture
def server(resp):  # noqa: F811 - the fixture
    return resp(authorise=Grant({*EVERYBODY.actions, LogAction.CONSUME}, groups={"*"}))


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_no_command_holds_the_others_up(server, raw, watched, log, flood):  # noqa: F811 - the fixtures
    """F147: empty commands, and thousands of arguments, take turns with the commands of others."""
    log.groups.create("g")
    client = raw(server)
    turns = watched(server)

    def send():
        for data in flood:
            client.write(data)
        client.send("ECHO", "the end")

    sender = threading.Thread(target=send)
    sender.start()
    while client.line() != b"the end":
        pass
    sender.join()
    assert turns.count >= 3  # empty commands cost little, a hundred of them one step
    assert turns.longest < TURN


def test_replies_of_many_rows_are_made_on_threads(server, stock, watched, log, fill):  # noqa: F811 - the fixtures
    """F147: what is pending, and what was claimed."""
    fill(2_000)
    client = stock(server)
    log.groups.create("g", since=Start.EARLIEST, max_ack_pending=5_000)
    for number in range(10):
        assert len(client.execute_command("CDC.GROUP", "READ", "shop", "g", f"c{number}", 2_000)) == 200
    turns = watched(server)
    assert len(client.execute_command("CDC.PENDING", "shop", "g", "COUNT", 5_000)) == 2_000
    assert turns.longest < TURN
    assert client.execute_command("CDC.CLAIM", "shop", "g", "b", 0, "COUNT", 5_000, "JUSTID")[1]
    assert turns.longest < TURN


async def test_unfinished_commands_have_a_bound_for_the_server(resp, raw, stock, until):  # noqa: F811 - the fixtures
    """F147: connections that hold most are aborted; a command of a usual size is not."""
    server = resp(resp_command_bytes=64 * 1024, resp_input_bytes=600_000)
    usual = raw(server)
    usual.write(b"*2\r\n$4\r\nECHO\r\n$20000\r\n" + b"x" * 10_000)
    await until(lambda: server.figures()["unfinishedBytes"] > 10_000)
    for _ in range(40):
        raw(server).write(b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 50_000)
        assert server.figures()["unfinishedBytes"] <= 600_000
    await until(lambda: server.figures()["ended"].get("OVERLOAD", 0) >= 28)
    assert server.figures()["connections"] <= 13
    assert stock(server).ping()
    usual.write(b"x" * 10_000 + b"\r\n")
    assert usual.line() == b"$20000"
    assert usual.line() == b"x" * 20_000


async def test_unread_replies_have_a_bound_for_the_server(resp, raw, stock, log, fill, until):  # noqa: F811 - the fixtures
    """F147: connections that hold most are aborted, long before each has been silent for too long."""
    fill(20, body="x" * 50_000)
    # Each of 24 connections holds some 150 KB before the server reads no more of it, which is twice the bound. Else a machine that
    # pauses makes room by the time-out, or by not reading those who have taken most of its processor.
    server = resp(resp_output_bytes=1_500_000, stall_timeout=600.0, late_share=1.0)
    other = stock(server)
    for _ in range(24):
        client = raw(server)
        for _ in range(12):
            client.send("CDCPOLL", "0", "100")
        assert server.figures()["unsentBytes"] <= 1_500_000 + 2**20
    await until(lambda: server.figures()["ended"].get("OVERLOAD", 0) >= 4)
    assert other.ping()
    assert len(other.execute_command("CDCPOLL", "0", "100")) >= 1
    assert server.figures()["unsentBytes"] <= 1_500_000
