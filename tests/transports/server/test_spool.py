"""Transactions in parts over real sockets, and where their parts are kept."""

import asyncio
import errno
import gc
import json
import threading

import pytest

from penstock_cdc.errors import InvalidChange, LogFull, TooCostly
from publishers import Position
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Submission, Wait
from publishers.errors import LogExhausted, PredecessorFailed
from tests.harness.constants import set_constant
from tests.harness.failing import failing
from tests.harness.inside import appending_of, pools_of
from tests.publishers.support import Held, wait_until
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, answers, append, change
from transports import Grant
from transports.access.access import EVERYBODY
from transports.access.principal import ANONYMOUS
from transports.errors import GoingAway
from transports.protocol.connection import Send
from transports.quotas.charged_file import LEAST, OPENED, SMALL
from transports.quotas.pool import Pool
from transports.quotas.shared_bytes import SharedBytes
from transports.server.append_lane import AppendLane
from transports.server.connection_appends import ConnectionAppends
from transports.server.spool import PartSpool


@pytest.fixture
def writable(serving):
    """A server that everybody may append to."""
    return lambda **options: serving(**{"authorise": WRITERS, **options})


class Bounds:
    """What spools take of."""

    def __init__(self, spooled=10 * LEAST, memory=10 * SMALL, waiting=10 * LEAST, principal=None):
        self.spooled = SharedBytes(
            "spooled_bytes", spooled, "bytes", share=("principal_spooled_bytes", principal or spooled)
        )
        self.memory = SharedBytes("appending_bytes", 2 * memory, "bytes")
        self.waiting = SharedBytes("appending_bytes", 2 * waiting, "bytes")
        self.made = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for spool in self.made:
            spool.close()
        assert self.taken == (0, 0, 0)

    def spool(self, principal="ann"):
        self.made.append(PartSpool(principal, self.spooled, self.memory, self.waiting))
        return self.made[-1]

    @property
    def taken(self):
        return self.spooled.taken, self.memory.taken, self.waiting.taken


def part(*keys, pad=0):
    return json.dumps([change(key, pad="x" * pad) for key in keys]).encode()


def test_what_is_small_stays_in_memory_and_costs_what_it_holds():
    """F145: a thousand that have just begun cost next to nothing."""
    with Bounds() as bounds:
        spool = bounds.spool()
        assert not spool.put(part(1, 2))
        assert not spool.put(part(3))
        assert (spool.small, spool.stored) == (True, 2)
        size = OPENED + len(part(1, 2)) + len(part(3)) + 16
        assert bounds.taken == (size, size, 0)
        for _ in range(1_000):
            bounds.spool()
        assert bounds.taken == (size + 1_000 * OPENED, size + 1_000 * OPENED, 0)
        assert [one.key for one in spool.mutations()] == [b"1", b"2", b"3"]
        assert len(list(spool.batches())) == 1


def test_what_is_large_waits_for_a_thread_within_its_bounds():
    """F145: what waits, what is stored, and what of it is one principal's."""
    big = part(1, pad=LEAST)
    with Bounds(spooled=4 * LEAST, waiting=2 * LEAST, principal=3 * LEAST) as bounds:
        spool = bounds.spool()
        assert spool.put(big)
        assert spool.stored == 0
        assert bounds.waiting.taken > LEAST
        with pytest.raises(TooCostly, match="appending_bytes") as found:
            spool.put(big)
        assert found.value.retryable
        assert spool.store() == 1
        assert bounds.waiting.taken == 0
        assert spool.put(big)
        with pytest.raises(TooCostly, match="principal_spooled_bytes") as found:
            bounds.spool().put(part(1, pad=SMALL))
        assert found.value.retryable
        other = bounds.spool("bob")
        assert spool.store() == 2
        with pytest.raises(TooCostly, match="principal_spooled_bytes"):
            spool.put(big)
        assert other.put(big)
        assert other.store() == 1
        with pytest.raises(TooCostly, match="spooled_bytes is 4194304, of which"):
            other.put(big)
        assert bounds.waiting.taken == 0
        assert [one.key for one in spool.mutations()] == [b"1", b"1"]
        assert spool.put(b"[]")
        spool.close()
        assert spool.store() == 2


def test_what_never_fits_is_not_to_be_tried_again():
    """F145."""
    for few in (Bounds(spooled=1000, principal=2 * LEAST), Bounds(principal=1000)):
        with few as bounds, pytest.raises(TooCostly) as found:
            bounds.spool()
        assert not found.value.retryable


def test_without_room_in_memory_it_is_in_a_file_from_the_beginning():
    """F145: memory is no reason to refuse a part; a file counts a megabyte, so the number of files has a bound."""
    with Bounds(memory=2 * OPENED + len(part(1)) + 8) as bounds:
        first, second = bounds.spool(), bounds.spool()
        assert (first.put(part(1)), second.put(part(1))) == (False, True)
        assert [one.key for one in second.mutations()] == [b"1"]
        assert bounds.spooled.taken == OPENED + len(part(1)) + 8 + LEAST


def test_what_is_wrong_with_a_change_is_told_by_part_and_place():
    """F145."""
    with Bounds() as bounds:
        spool = bounds.spool()
        spool.put(part(1))
        spool.put(b'[{"entity_type":"order","key":"1","body":{}},{"entity_type":"order"}]')
        with pytest.raises(InvalidChange, match=r"parts\[1\]\.changes\[1\]"):
            list(spool.mutations())


@pytest.mark.parametrize(
    ("number", "wanted"), [(errno.ENOSPC, LogFull), (errno.EMFILE, LogExhausted), (errno.EIO, OSError)]
)
def test_a_disk_that_takes_no_more_is_remembered(monkeypatch, number, wanted):
    """F145: what was not kept is not committed without it."""
    with Bounds() as bounds:
        spool = bounds.spool()
        spool.put(part(1, pad=SMALL))
        failing(monkeypatch, spool.file, "write", OSError(number, "no"))
        for _ in range(2):
            with pytest.raises(wanted):
                spool.store()
            with pytest.raises(wanted):
                list(spool.mutations())


async def send_parts(wire, name, *parts, **payload):
    await wire.send(type="begin", id=name, payload=payload)
    for keys in parts:
        await wire.send(
            type="part", id=name, payload={"changes": [change(key, pad="x" * 100) for key in keys]}
        )


async def test_a_transaction_in_parts_is_one_version(writable, dial, log):
    """F145: acknowledged as an append, in its turn."""
    server = writable()
    async with dial(server.url) as wire:
        limits = (await wire.init())["payload"]["limits"]
        assert (limits["transactions"], limits["transactionBytes"]) == (4, 256 * 2**20)
        await send_parts(wire, "t", [1, 2], [3], producer="etl", sequence=1, meta={"by": "ann"})
        assert [(await wire.expect("spooled"))["parts"] for _ in range(2)] == [1, 2]
        await append(wire, "a", change(0))
        assert (await wire.expect("appended"))["version"] == 1
        await wire.send(type="commit", id="t")
        told = await wire.expect("appended")
        assert (told["id"], told["version"], told["changes"]) == ("t", 2, 4)
        await send_parts(wire, "t", [1], [2, 3], producer="etl", sequence=1)
        await wire.send(type="commit", id="t")
        await wire.expect("spooled")
        told = [await wire.expect("spooled"), await wire.expect("appended")][1]
        assert (told["version"], told["duplicate"]) == (2, True)
        await send_parts(wire, "u", [5])
        await wire.send(type="abort", id="u")
        await send_parts(wire, "v", [])
        await wire.send(type="part", id="v", payload={"changes": 7})
        assert [(await wire.expect("spooled"))["id"] for _ in range(3)] == ["u", "v", "v"]
        await wire.send(type="commit", id="v")
        assert (await wire.expect("error"))["payload"]["path"] == "parts[1].changes"
    assert log.visible == 2
    assert log.history(since=2).changes[0].meta == {"by": "ann"}
    await asyncio.to_thread(wait_until, lambda: not appending_of(server.application).transactions)
    assert appending_of(server.application).spooled.taken == 0


async def test_who_may_not_write_is_told_before_anything_is_kept(serving, dial, log):
    """F145: and again at the commit, as rights may be taken away meanwhile."""
    rights = {"write": False}
    reader = Grant(EVERYBODY.actions)

    def authorise(principal, name, action):
        return WRITERS if rights["write"] else reader

    server = serving(authorise=authorise)
    async with dial(server.url) as wire:
        await wire.init()
        await send_parts(wire, "t", [1])
        assert (await wire.expect("error"))["payload"]["code"] == "FORBIDDEN"
        rights["write"] = True
        await send_parts(wire, "u", [1])
        await wire.expect("spooled")
        rights["write"] = False
        await wire.send(type="commit", id="u")
        assert (await wire.expect("error"))["payload"]["code"] == "FORBIDDEN"
    assert log.head == Position(1, 0)
    await asyncio.to_thread(wait_until, lambda: not appending_of(server.application).transactions)


async def test_parts_beyond_what_a_principal_may_spool_are_refused(serving, dial):
    """F145: another one is not disturbed."""
    server = serving(
        authenticate=knowing("ann", "bob"),
        authorise=WRITERS,
        spooled_bytes=2 * LEAST,
        append_bytes=3 * LEAST,
    )
    for name in ("ann", "bob"):
        async with dial(server.url) as wire:
            await wire.init(token=name)
            await wire.send(type="begin", id="t")
            await wire.send(type="part", id="t", payload={"changes": [change(1, pad="x" * SMALL)]})
            await send_parts(wire, "u", [1])
            answered = {message["id"]: message for message in [await wire.receive() for _ in range(2)]}
            assert answered["t"]["type"] == "spooled"
            assert answered["u"]["payload"]["option"] == "principal_spooled_bytes"
            assert answered["u"]["payload"]["retryable"]
            await append(wire, "a", change(name))
            assert await answers(wire, 1) == [("a", "appended")]


async def test_an_idle_transaction_is_dropped(writable, dial):
    """F145: its client is told, and may begin again."""
    server = writable(transaction_idle=0.05)
    async with dial(server.url) as wire:
        await wire.init()
        await send_parts(wire, "t", [1])
        while (message := await wire.receive())["type"] != "error":
            assert message["type"] == "spooled"  # not even that, on a machine that is busy enough
        assert message["payload"]["code"] == "TRANSACTION_IDLE"
    await asyncio.to_thread(wait_until, lambda: not appending_of(server.application).spooled.taken)


async def test_a_disk_that_fails_refuses_the_transaction(writable, dial, monkeypatch):
    """F145: also where the thread that keeps its parts finds out behind the commit."""
    from transports.server import spool

    failing(monkeypatch, spool.PartSpool, "store", LogFull(0, 1))
    async with dial(writable().url) as wire:
        await wire.init()
        await send_parts(wire, "t", [1])
        assert (await wire.expect("error"))["payload"]["code"] == "LOG_FULL"
        monkeypatch.setattr(spool.PartSpool, "small", property(lambda _: False))
        await send_parts(wire, "u", [1])
        assert (await wire.expect("error"))["payload"]["code"] == "LOG_FULL"
        await wire.send(type="commit", id="u")
        assert (await wire.expect("error"))["payload"]["code"] == "NO_TRANSACTION"


async def test_what_comes_while_a_thread_keeps_parts_is_kept_behind_them(writable, dial, monkeypatch):
    """F145: one thread at a time is busy for a transaction."""
    set_constant(monkeypatch, "transports.quotas.charged_file.SMALL", 100)
    go, inside, store = threading.Event(), threading.Event(), PartSpool.store

    def slow(self):
        parts = store(self)
        inside.set()
        assert go.wait(60)
        return parts

    async with dial(writable().url) as wire:
        await wire.init()
        monkeypatch.setattr(PartSpool, "store", slow)
        await send_parts(wire, "t", [1])
        assert await asyncio.to_thread(inside.wait, 60)
        await wire.send(type="part", id="t", payload={"changes": [change(2)]})
        await append(wire, "a", change(0))  # it takes another thread, and comes behind the part
        assert (await wire.expect("appended"))["version"] == 1
        go.set()
        assert [(await wire.expect("spooled"))["parts"] for _ in range(2)] == [1, 2]
        await wire.send(type="commit", id="t")
        assert (await wire.expect("appended"))["changes"] == 3


def test_effects_of_others_are_none_of_those_who_append():
    """A mistake of the driver is told as one."""
    connection = ConnectionAppends.__new__(ConnectionAppends)
    with pytest.raises(TypeError, match="no effect"):
        connection.do(Send(b""), ANONYMOUS)


async def test_large_transactions_wait_for_those_before_them(writable, dial, log, monkeypatch):
    """F145: and are refused with them; what was submitted before is told of first."""
    set_constant(monkeypatch, "transports.quotas.charged_file.SMALL", 100)
    server = writable()
    place = str(log.token(log.head))
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        await append(wire, "a", change(1))
        assert await asyncio.to_thread(held.inside.wait, 60)
        await append(wire, "b", change(2), expect=place)
        await send_parts(wire, "t", range(10))
        await wire.send(type="commit", id="t")
        held.go.set()
        assert await answers(wire, 3) == [
            ("a", "appended"),
            ("b", "EXPECTATION_FAILED"),
            ("t", "PREDECESSOR_FAILED"),
        ]
        for name in "uv":
            await send_parts(wire, name, range(10))
        await wire.send(type="commit", id="u", payload={"first": True})
        await append(wire, "c", change(3))
        await wire.send(type="commit", id="v")
        assert await answers(wire, 3) == [("u", "appended"), ("c", "appended"), ("v", "appended")]
    assert log.visible == 4
    await asyncio.to_thread(wait_until, lambda: not appending_of(server.application).transactions)
    assert appending_of(server.application).spooled.taken == 0


async def test_a_server_that_stops_drops_what_is_open(writable, dial, monkeypatch):
    """F145: also what its threads do not take any more."""
    set_constant(monkeypatch, "transports.quotas.charged_file.SMALL", 100)
    server = writable()
    async with dial(server.url) as wire:
        await wire.init()
        await send_parts(wire, "t", range(10))
        await wire.expect("spooled")
        await asyncio.to_thread(server.stop)
    appending = appending_of(server.application)
    assert (appending.spooled.taken, appending.transactions) == (0, 0)


@pytest.mark.parametrize("pad", [10, SMALL])
def test_a_file_that_fails_as_it_is_closed_gives_its_bytes_back(monkeypatch, pad):
    """F145: what is still to be written finds a full disk, and nobody wants it any more."""
    bounds = Bounds()
    spool = bounds.spool()
    spool.put(part(1, pad=pad))
    close = spool.file.close

    def fail():
        close()
        raise OSError(errno.ENOSPC, "no")

    with monkeypatch.context() as patched:
        patched.setattr(spool.file, "close", fail)
        spool.close()
    assert bounds.taken == (0, 0, 0)


@pytest.mark.parametrize("error", [GoingAway(), TooCostly("threads of the system", 1, 0, "later")])
async def test_what_no_thread_forgets_is_forgotten_all_the_same(writable, dial, monkeypatch, caplog, error):
    """F145: and nothing of it is reported as an error."""
    set_constant(monkeypatch, "transports.quotas.charged_file.SMALL", 100)
    server = writable()
    appending = appending_of(server.application)

    async with dial(server.url) as wire:
        await wire.init()
        await send_parts(wire, "t", range(10))
        await wire.expect("spooled")
        failing(monkeypatch, pools_of(server.application).appending, "submit", error)
        await wire.send(type="abort", id="t")
        await asyncio.to_thread(wait_until, lambda: not appending.spooled.taken)
        await wire.send(type="ping")
        await wire.expect("pong")
        gc.collect()
    assert appending.transactions == 0
    assert not caplog.records


async def test_an_append_that_gets_no_thread_stops_none_behind_it():
    """F145: what is to be alone waits for its own turn, which nothing else would begin."""
    go = threading.Event()
    pool = Pool("append", 1, 1, 10)
    lane = AppendLane(asyncio.get_running_loop(), pool)
    answers = {name: asyncio.get_running_loop().create_future() for name in "abcd"}

    def submit(_):
        assert go.wait(60)
        return Submission.of(Commit(1, False, 1, 1))

    def put(name, *, alone=False):
        def answered(result):
            try:
                answers[name].set_result(result())
            except Exception as error:
                answers[name].set_exception(error)

        lane.put("client", 0, Wait.DURABLE, submit, answered, alone=alone)

    def crowd(*_, **__):
        pool.submit = submitted
        raise TooCostly("scans_waiting", 2, 1, "to ask later", what="requests that wait", left=0)

    put("a")
    submitted, pool.submit = pool.submit, crowd
    for name, alone in (("b", False), ("c", True), ("d", False)):
        put(name, alone=alone)
    go.set()
    async with asyncio.timeout(60):
        found = await asyncio.gather(*answers.values(), return_exceptions=True)
    assert [type(one) for one in found] == [Commit, TooCostly, PredecessorFailed, PredecessorFailed]
