"""Kora's groups, by stock clients; and the traps of Kora, each with a test."""

import subprocess
import threading
from shutil import which

import pytest
import redis

from publishers import ChangeLog, Criterion, View, upsert
from publishers.mutations.mutation import remove
from tests.transports.resp.conftest import DEADLINE
from transports import Grant, LogAction

GROUPS = Grant({LogAction.READ, LogAction.CONSUME}, groups={"*"})
KEY = "stream:shop"


@pytest.fixture
def client(resp, stock):
    return stock(resp(authorise=GROUPS))


@pytest.fixture
def fill(log):
    def fill(count, first=0):
        for number in range(first, first + count):
            log.commit([upsert("user", str(number), {"n": number})])

    return fill


def keys(events):
    return [event[3].decode() for event in events]


def refused(client, *words):
    with pytest.raises(redis.RedisError) as told:
        client.execute_command(*words)
    return str(told.value)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_group_is_made_read_and_acknowledged_as_kora_documents_it(log, fill, resp, stock, protocol):
    """F133: reply shapes as Kora documents them; several consumers share the changes."""
    fill(6)
    client = stock(resp(authorise=GROUPS), protocol=protocol)
    assert client.execute_command("CDC.GROUP", "CREATE", KEY, "mygroup", 0) in (b"OK", "OK", True)
    first = client.execute_command("CDC.GROUP", "READ", KEY, "mygroup", "worker-1", 4)
    second = client.execute_command("CDC.GROUP", "READ", KEY, "mygroup", "worker-2", 4)
    assert keys(first + second) == [f"user:{number}" for number in range(6)]
    assert first == client.execute_command("CDCPOLL", 0, 4)
    rows = client.execute_command("CDC.PENDING", KEY, "mygroup")
    assert [row[:2] for row in rows] == [
        [event[0], name]
        for event, name in [*((one, b"worker-1") for one in first), *((one, b"worker-2") for one in second)]
    ]
    assert all(0 <= row[2] < DEADLINE * 1000 for row in rows)
    sequences = [event[0] for event in first]
    assert client.execute_command("CDC.ACK", KEY, "mygroup", *sequences) == 4
    assert client.execute_command("CDC.ACK", KEY, "mygroup", *sequences) == 0
    assert [row[0] for row in client.execute_command("CDC.PENDING", KEY, "mygroup")] == [
        event[0] for event in second
    ]


def test_a_group_at_the_dollar_gives_what_comes_from_now_on(log, fill, client):
    """F133: a trap of Kora, whose `$` is documented and does nothing. With times and values, which it documents too."""
    fill(3)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "late", "$")
    assert client.execute_command("CDC.GROUP", "READ", "shop", "late", "a", 10) == []
    fill(1, first=3)
    (event,) = client.execute_command("CDC.GROUP", "READ", "shop", "late", "a", 10)
    (change,) = log.history(Criterion(keys={"3"})).changes
    assert event[1:] == [int(change.timestamp.timestamp() * 1000), b"Set", b"user:3", b'{"n":3}']


def test_a_group_in_the_future_is_refused(fill, client):
    """F133: a trap of Kora, which takes such a place, and gives nothing for ever."""
    fill(1)
    assert "CURSOR_AHEAD" in refused(client, "CDC.GROUP", "CREATE", "shop", "g", 2**40)
    assert "NOGROUP" in refused(client, "CDC.GROUP", "READ", "shop", "g", "a", 1)


def test_changes_of_two_logs_never_meet_in_one_group(tmp_path, log, fill, resp, stock):
    """F133: a trap of Kora, whose shards share the place of a group although each counts from 0."""
    fill(2)
    with ChangeLog.open(tmp_path / "other") as other:
        other.commit([upsert("order", "1", {})])
        client = stock(resp({"shop": log, "other": other}, authorise=GROUPS))
        for key in ("shop", "other"):
            client.execute_command("CDC.GROUP", "CREATE", key, "g", 0)
        assert keys(client.execute_command("CDC.GROUP", "READ", "other", "g", "a", 10)) == ["order:1"]
        assert keys(client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 10)) == ["user:0", "user:1"]
        assert keys(client.execute_command("CDCPOLL", 0, 10, "LOG", "other")) == ["order:1"]
        assert "NOLOG" in refused(client, "CDCPOLL", 0, 10)
        assert "NOLOG" in refused(client, "CDC.GROUP", "READ", "third", "g", "a", 10)


def test_what_retention_took_is_told_as_lost_and_is_not_pending_for_ever(tmp_path, resp, stock):
    """F133: a trap of Kora, whose entries stay pending when the ring has overwritten them."""
    with ChangeLog.open(tmp_path / "small", segment_bytes=64 * 1024, retain_bytes=0) as log:
        client = stock(resp(log, authorise=GROUPS))
        log.groups.create("g", since="earliest", keep_bytes=0, on_gap="latest")
        first = log.commit([upsert("user", "0", {"x": "y"})])
        ((sequence, *_),) = client.execute_command("CDC.GROUP", "READ", "small", "g", "a", 1)
        while log.oldest.version <= first.version:
            log.commit([upsert("user", "big", {"x": "y" * 40_000})])
        client.execute_command("CDC.GROUP", "READ", "small", "g", "b", 1)
        following, events, lost = client.execute_command("CDC.CLAIM", "small", "g", "b", 0, sequence)
        assert (following, events, lost) == (0, [], [sequence])
        assert sequence not in [row[0] for row in client.execute_command("CDC.PENDING", "small", "g")]
        assert "HISTORY_PRUNED" in refused(client, "CDCPOLL", sequence, 1)
        assert "HISTORY_PRUNED" in refused(client, "CDC.GROUP", "CREATE", "small", "h", sequence)
        told = client.execute_command("CDCPOLL", sequence, 1, "RESULT")
        told = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
        assert told[b"gap"]
        assert told[b"events"][0][0] > sequence


def test_a_consumer_is_not_tied_to_a_connection(fill, resp, stock):
    """F133: as with Redis; a pool of connections may read on one, and acknowledge on another."""
    fill(3)
    server = resp(authorise=GROUPS)
    first, second = stock(server), stock(server)
    first.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    events = first.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 2)
    events += second.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 2)
    assert keys(events) == ["user:0", "user:1", "user:2"]
    assert (
        second.execute_command("CDC.ACK", "shop", "g", "CONSUMER", "a", *(event[0] for event in events)) == 3
    )
    assert server.figures()["consumers"] == 1


def test_a_consumer_that_lost_a_delivery_to_another_one_is_fenced_if_it_says_who_it_is(fill, client):
    """F133: without its name an acknowledgement is of whichever consumer has it, as with Redis."""
    fill(2)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    one, two = (event[0] for event in client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 2))
    client.execute_command("CDC.CLAIM", "shop", "g", "b", 0, one)
    assert "FENCED" in refused(client, "CDC.ACK", "shop", "g", "CONSUMER", "a", one, two)
    assert "FENCED" in refused(client, "CDC.NACK", "shop", "g", "never-read", two)
    assert client.execute_command("CDC.ACK", "shop", "g", one, two) == 2


def test_a_group_has_the_changes_that_its_pattern_means(log, client):
    """F133."""
    log.commit(
        [upsert("user", "1", {}), upsert("order", "1", {}), remove("user", "2"), upsert("user", "12", {})]
    )
    patterns = {
        "user:*": ["user:1", "user:2", "user:12"],
        "user:1?": ["user:12"],
        "user:1": ["user:1"],
        "*:1": ["user:1", "order:1"],
        "*": ["user:1", "order:1", "user:2", "user:12"],
    }
    for number, (pattern, found) in enumerate(patterns.items()):
        client.execute_command("CDC.GROUP", "CREATE", "shop", f"g{number}", 0, "MATCH", pattern)
        assert keys(client.execute_command("CDC.GROUP", "READ", "shop", f"g{number}", "a", 10)) == found
        assert keys(client.execute_command("CDCPOLL", 0, 10, "MATCH", pattern)) == found


@pytest.mark.parametrize("words", [("CDCPOLL", "$", 10), ("CDC.GROUP", "READ", "shop", "g", "a", 1)])
async def test_a_read_that_waits_is_answered_by_the_next_change(fill, resp, stock, until, words):
    """F133: and keeps no thread, however many wait."""
    server = resp(authorise=GROUPS, scan_threads=1)
    stock(server).execute_command("CDC.GROUP", "CREATE", "shop", "g", 0, "ORDERING", "none")
    found = []

    def wait():
        found.extend(stock(server).execute_command(*words, "BLOCK", 60_000))

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    # A read waits already while its first look at the log, which finds nothing, gives its thread back.
    await until(lambda: server.figures()["waiting"] == 5, "all wait")
    await until(lambda: server.figures()["threads"]["scanning"] == 0, "none keeps a thread")
    assert server.figures()["waiting"] == 5
    fill(5)
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert keys(found)


async def test_a_read_that_waits_is_answered_when_another_consumer_gives_back(fill, resp, stock, until):
    """F133: also one in the process of the owner."""
    fill(1)
    server = resp(authorise=GROUPS)
    client = stock(server)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    ((sequence, *_),) = client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 1)
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(
            stock(server).execute_command("CDC.GROUP", "READ", "shop", "g", "b", 1, "BLOCK", 60_000)
        )
    )
    thread.start()
    await until(lambda: server.figures()["waiting"] == 1, "it waits")
    client.execute_command("CDC.NACK", "shop", "g", "a", "DELAY", 0, sequence)
    thread.join(DEADLINE)
    assert [event[0] for event in found] == [sequence]


async def test_what_was_read_for_a_client_that_has_left_is_due_at_once(log, fill, resp, raw, stock, until):
    """F133: it was never told, so it counts as no delivery."""
    server = resp(authorise=GROUPS)
    client = stock(server)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    group, entered, go_on = log.groups.open("g"), threading.Event(), threading.Event()
    deliver = group.deliver

    def slowly(*given, **named):
        found = deliver(*given, **named)
        if found:
            entered.set()
            assert go_on.wait(DEADLINE)
        return found

    group.deliver = slowly
    fill(1)
    leaver = raw(server)
    leaver.send("CDC.GROUP", "READ", "shop", "g", "a", "1")
    await until(entered.is_set, "it was delivered")
    connections = server.figures()["connections"]
    leaver.close()
    await until(lambda: server.figures()["connections"] < connections, "the client has left")
    group.deliver = deliver
    go_on.set()
    events = await until(
        lambda: client.execute_command("CDC.GROUP", "READ", "shop", "g", "b", 1), "it is due"
    )
    assert keys(events) == ["user:0"]
    assert [row[3] for row in client.execute_command("CDC.PENDING", "shop", "g", "WITHCOUNTS")] == [1]


def test_a_consumer_of_the_process_is_not_taken_over_in_silence(log, fill, client):
    """F133: each that joins under a name fences the one before, which is told once."""
    fill(3)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    assert len(client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 1)) == 1
    with log.groups.join("g", "a") as member:
        assert "FENCED" in refused(client, "CDC.GROUP", "READ", "shop", "g", "a", 1)
        assert len(member.read(1, wait=0)) == 1


def test_a_group_that_was_moved_goes_on_where_it_was_moved_to(log, fill, client):
    """F133."""
    fill(3)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    assert len(client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 3)) == 3
    log.groups.seek("g", "earliest")
    assert len(client.execute_command("CDC.GROUP", "READ", "shop", "g", "a", 3)) == 3
    log.groups.drop("g")
    assert "NOGROUP" in refused(client, "CDC.GROUP", "READ", "shop", "g", "a", 3)


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (None, False),
        (Grant({LogAction.CONSUME}), False),
        (Grant({LogAction.CONSUME}, groups={"other-*"}), False),
        (Grant({LogAction.CONSUME}, View.of(fields=["n"]), groups={"g"}), False),
        (Grant({LogAction.READ}), False),
        (Grant({LogAction.CONSUME}, groups={"g*"}), True),
    ],
)
def test_a_group_is_for_those_to_whom_it_is_granted(fill, log, resp, stock, grant, allowed):
    """F133: whether there is such a group or not."""
    client = stock(resp(authorise=grant))
    if allowed:
        client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
        return
    for words in (
        ("CDC.GROUP", "CREATE", "shop", "g", 0),
        ("CDC.GROUP", "READ", "shop", "g", "a", 1),
        ("CDC.GROUP", "LEAVE", "shop", "g", "a"),
        ("CDC.GROUP", "INFO", "shop", "g"),
        ("CDC.ACK", "shop", "g", 1),
        ("CDC.NACK", "shop", "g", "a", 1),
        ("CDC.PENDING", "shop", "g"),
        ("CDC.CLAIM", "shop", "g", "a", 0),
    ):
        assert "must be" in refused(client, *words)
    assert list(log.groups) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("CDC.GROUP", "DANCE"), "must be one of CREATE, READ"),
        (("CDC.GROUP", "CREATE", "shop", "Not A Name", 0), "small letters"),
        (("CDC.GROUP", "CREATE", "shop", "h", 0, "ORDERING", "random"), "key, none, global"),
        (("CDC.GROUP", "CREATE", "shop", "h", -1), "sequence number"),
        (("CDC.GROUP", "CREATE", "shop", "g", 0), "already exists"),
        (("CDC.GROUP", "READ", "shop", "g", "", 1), "1 to 256 printable characters"),
        (("CDC.GROUP", "READ", "shop", "g", "two\r\nlines", 1), "1 to 256 printable characters"),
        (("CDC.GROUP", "READ", "shop", "g", "a", 0), "from 1"),
        (("CDC.ACK", "shop", "g", "SIDEWAYS", 1), "CONSUMER or DURABLE"),
        (("CDC.ACK", "shop", "g", "DURABLE"), "sequence is missing"),
        (("CDC.NACK", "shop", "g", "a", "DELAY", "soon", 1), "whole number"),
        (("CDC.NACK", "shop", "g", "a", "SIDEWAYS", 1), "DELAY or NOCOUNT"),
        (("CDC.CLAIM", "shop", "g", "a", 0, "JUSTID", "JUSTID"), "JUSTID"),
        (("CDC.PENDING", "shop", "g", "COUNT", 1, "COUNT", 1), "given once"),
        (("CDC.PENDING", "shop", "nosuch"), "no such group"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(fill, client, words, why):
    """F133."""
    fill(1)
    client.execute_command("CDC.GROUP", "CREATE", "shop", "g", 0)
    assert why in refused(client, *words)
    assert client.ping()


@pytest.mark.skipif(which("redis-cli") is None, reason="no redis-cli; apt-get install redis-tools")
def test_redis_cli_reads_and_acknowledges(fill, resp):
    """F133."""
    fill(2)
    server = resp(authorise=GROUPS)

    def cli(*words):
        done = subprocess.run(
            ["redis-cli", "-p", str(server.port), *words],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        return done.stdout.splitlines()

    assert cli("CDC.GROUP", "CREATE", "stream:shop", "g", "0") == ["OK"]
    lines = cli("CDC.GROUP", "READ", "stream:shop", "g", "worker-1", "10")
    assert [lines[place::5] for place in (2, 3)] == [["Set", "Set"], ["user:0", "user:1"]]
    assert cli("CDC.ACK", "stream:shop", "g", *lines[0::5]) == ["2"]
    assert cli("-3", "CDC.PENDING", "stream:shop", "g") == [""]
    assert "cdcpoll" in cli("COMMAND")
