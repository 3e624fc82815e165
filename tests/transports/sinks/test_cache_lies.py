"""What answers in the place of a cache as none does: neither time nor memory is without a bound, and nothing passes for done."""

import threading

import pytest

from publishers import truncate
from tests.harness.constants import set_constant
from tests.publishers.support import wait_until
from tests.transports.sinks.liars import Liar, closes, drips, endless, says, silent
from tests.transports.sinks.targets import GoingClock, rigged
from transports.sinks import SinkRunner, SinkState, cache
from transports.sinks.cache import CacheSink

ROOM = 200_000  # bytes of an answer
BUFFERED = 8_000_000  # what sockets of both sides hold at most


def command(reader):
    """Reads one command."""
    head = reader.readline()
    if not head:
        raise EOFError
    parts = []
    for _ in range(int(head[1:])):
        size = int(reader.readline()[1:])
        parts.append(reader.read(size + 2)[:-2])
    return [parts[0].upper(), *parts[1:]]


class Cache:
    """Answers as a cache that holds nothing, but for the next lie about a command."""

    def __init__(self):
        self.lies, self.done = {}, []

    def __call__(self, liar, connection):
        queued = None
        with connection.makefile("rb") as reader:
            while True:
                name, *arguments = command(reader)
                lie = self.lies.pop(name, None)
                if lie is not None:
                    lie(liar, connection)
                    continue
                self.done.append((name, *arguments))
                if name == b"MULTI":
                    queued, answer = [], b"+OK\r\n"
                elif name == b"EXEC":
                    answer = b"*%d\r\n" % len(queued) + b"".join(queued)
                    queued = None
                elif queued is not None:
                    queued.append(self.answer(name))
                    answer = b"+QUEUED\r\n"
                else:
                    answer = self.answer(name)
                connection.sendall(answer)

    def answer(self, name):
        told = {b"GET": b"$-1\r\n", b"UNLINK": b":1\r\n", b"SCAN": b"*2\r\n$1\r\n0\r\n*0\r\n"}
        return told.get(name, b"+PONG\r\n" if name == b"PING" else b"+OK\r\n")


@pytest.fixture
def server():
    yield (served := Cache())
    assert served.lies == {}


@pytest.fixture
def liar(server, monkeypatch):
    set_constant(monkeypatch, cache, "ANSWER_BYTES", ROOM)
    with Liar(server) as made:
        yield made


def sink(liar, **options):
    return CacheSink(f"redis://127.0.0.1:{liar.port}", **options)


PIPELINE = {
    "nothing that is known": says(b"!5\r\n"),
    "no line": says(b"\r\n"),
    "a text for a number": says(b"+fine\r\n"),
    "a number that is none": says(b":many\r\n"),
    "a length that is none": says(b"$x\r\n"),
    "a list for a number": says(b"*1\r\n:1\r\n"),
    "nil": says(b"$-1\r\n"),
    "lists in lists": says(b"*1\r\n" * 20_000),
    "a close in the middle": closes(b"$100\r\nabc"),
    "a close at once": closes(b""),
    "silence": silent,
    "drips": drips(b"+"),
    "a list in drips": drips(b"*1000000\r\n", b":1\r\n"),
    "a text without end": endless(b"$4000000000000\r\n"),
    "a line without end": endless(b"+"),
    "a list without end": endless(b"*4000000000000\r\n", b"+ab\r\n"),
}


@pytest.mark.parametrize("lie", PIPELINE.values(), ids=PIPELINE)
@pytest.mark.parametrize("name", [b"UNLINK", b"CLIENT"])  # of these greetings it is the first
def test_a_cache_that_lies_is_asked_again(server, liar, tmp_path, lie, name):
    """F110, F125: about its keys, or already when it is greeted."""
    waits = "drips" in lie.__qualname__ or lie is silent
    server.lies[name] = lie
    with rigged(tmp_path / "log", sink(liar, timeout=0.3 if waits else 10.0)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        assert rig.runner.statistics().confirmed is None
        assert liar.sent < ROOM + BUFFERED
        liar.released.set()
        rig.later(60.0)
        rig.drained()
        assert (b"UNLINK", b"order:a") in server.done


TRANSACTION = {
    "more answers": (b"EXEC", says(b"*5\r\n" + b"+OK\r\n" * 5)),
    "no list": (b"EXEC", says(b"+OK\r\n")),
    "nil": (b"EXEC", says(b"*-1\r\n")),
    "a value that was not set": (b"EXEC", says(b"*2\r\n+NO\r\n+OK\r\n")),
    "a place that was not set": (b"EXEC", says(b"*2\r\n+OK\r\n$-1\r\n")),
    "a place that is none": (b"GET", says(b"*0\r\n")),
    "no reason": (b"EXEC", says(b"-EXECABORT Transaction discarded because of previous errors.\r\n")),
}


@pytest.mark.parametrize(("name", "lie"), TRANSACTION.values(), ids=TRANSACTION)
def test_a_cache_of_values_that_lies_is_asked_again(server, liar, tmp_path, name, lie):
    """F110, F125."""
    server.lies[name] = lie
    with rigged(tmp_path / "log", sink(liar, values=True)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(60.0)
        rig.drained()
        assert (b"MSET", b"order:a", b'{"n":"a"}') in server.done


def test_a_server_that_cannot_write_now_is_asked_again_also_in_a_transaction(server, liar, tmp_path):
    """F110, F125: redis-py puts the command before what the server says."""
    why = b"-MISCONF Redis is configured to save RDB snapshots\r\n"
    server.lies = {b"MSET": says(why), b"EXEC": says(b"-EXECABORT Transaction discarded\r\n")}
    with rigged(tmp_path / "log", sink(liar, values=True)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        assert "order:a" not in rig.runner.statistics().last_error
        rig.later(60.0)
        rig.drained()


@pytest.mark.parametrize("lie", [says(b"*0\r\n"), says(b"+OK\r\n"), says(b"*2\r\n$1\r\nx\r\n*0\r\n")])
def test_a_scan_that_says_nothing_is_asked_for_again(server, liar, tmp_path, lie):
    """F110, F125."""
    server.lies[b"SCAN"] = lie
    with rigged(tmp_path / "log", sink(liar)) as rig:
        rig.log.commit([truncate("order")])
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(60.0)
        rig.drained()


def test_keys_that_are_found_and_not_deleted_are_looked_for_again(server, liar, tmp_path):
    """F110."""
    server.lies = {b"SCAN": says(b"*2\r\n$1\r\n0\r\n*1\r\n$7\r\norder:1\r\n"), b"UNLINK": says(b"+OK\r\n")}
    with rigged(tmp_path / "log", sink(liar)) as rig:
        rig.log.commit([truncate("order")])
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(60.0)
        rig.drained()


def test_a_scan_without_end_keeps_no_sink_from_its_orders(server, liar, tmp_path):
    """F110: each step is a good answer, and what is found is kept nowhere."""
    steps = threading.Semaphore(0)

    def more(_, connection):
        server.lies[b"SCAN"] = more
        steps.release()
        connection.sendall(b"*2\r\n$1\r\n7\r\n*1\r\n$7\r\norder:1\r\n")

    server.lies[b"SCAN"] = more
    with rigged(tmp_path / "log", sink(liar), clock=GoingClock()) as rig:
        rig.log.commit([truncate("order")])
        runner: SinkRunner = rig.runner.start()
        for _ in range(3):
            assert steps.acquire(timeout=30)
        runner.pause().result(30)
        assert runner.state is SinkState.PAUSED
        runner.resume().result(30)
        assert steps.acquire(timeout=30)
        runner.close(30)
        assert runner.state is SinkState.STOPPED
        server.lies.clear()


def test_a_cache_that_drips_holds_neither_close_nor_another_sink(server, liar, tmp_path):
    """F110: however many answers of a batch it drips, they share one time."""
    server.lies[b"UNLINK"] = drips(b"")
    with rigged(tmp_path / "log", sink(liar, timeout=0.5), clock=GoingClock()) as rig:
        rig.commit(*range(100))
        runner = rig.runner.start()
        wait_until(lambda: b"UNLINK" not in server.lies)
        runner.close(30)
        assert runner.state is SinkState.STOPPED
        assert rig.log.head.version == 2


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    "code", [b"TRYAGAIN", b"CLUSTERDOWN", b"MASTERDOWN", b"LOADING", b"NOREPLICAS", b"BUSY"]
)
def test_a_server_that_cannot_now_is_asked_again(server, liar, tmp_path, code, values):
    """F125: redis-py makes a class of some codes, and leaves them out of the text."""
    server.lies[b"EXEC" if values else b"UNLINK"] = says(
        (b"*2\r\n+OK\r\n" if values else b"") + b"-%s not now\r\n" % code
    )
    with rigged(tmp_path / "log", sink(liar, values=values)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(60.0)
        rig.drained()


@pytest.mark.parametrize("code", [b"NOPERM", b"NOAUTH"])
def test_a_server_that_lets_the_sink_do_nothing_pauses_it_and_nothing_is_left_out(
    server, liar, tmp_path, code
):
    """F125: it refuses the sink, and no single change."""
    server.lies[b"UNLINK"] = says(b"-%s you may not\r\n" % code)
    with rigged(tmp_path / "log", sink(liar), on_reject="drop") as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        rig.runner.resume()
        rig.drained()
        assert rig.runner.counters.dropped == 0
