"""What answers in the place of PostgreSQL as none does; a real one is in tests/servers."""

import struct

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgresql is not installed")

from tests.harness.constants import set_constant  # noqa: E402 - behind what it needs
from tests.publishers.support import wait_until  # noqa: E402 - likewise
from tests.transports.sinks.liars import Liar, closes, drips, endless, says, silent  # noqa: E402 - likewise
from tests.transports.sinks.targets import GoingClock, rigged  # noqa: E402 - likewise
from transports.sinks import SinkState, sql  # noqa: E402 - likewise
from transports.sinks.bounded import AnswerBound  # noqa: E402 - likewise
from transports.sinks.sql import SqlSink  # noqa: E402 - likewise

ROOM = 200_000  # bytes of an answer
BUFFERED = 8_000_000  # what sockets of both sides, and libpq, hold at most


def frame(kind, body=b""):
    return kind + struct.pack(">i", len(body) + 4) + body


LET_IN = frame(b"R", struct.pack(">i", 0)) + frame(b"S", b"server_version\x0017.0\x00")
READY = frame(b"Z", b"I")
COLUMN = frame(b"T", struct.pack(">h", 1) + b"a\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0))
ROW = frame(b"D", struct.pack(">hi", 1, 1) + b"x")


class Database:
    """Lets everybody in, and answers the next statement with a lie."""

    def __init__(self):
        self.lie, self.greeting, self.asked = None, None, 0

    def __call__(self, liar, connection):
        with connection.makefile("rb") as reader:
            while True:  # TLS and GSS are asked for first
                (size,) = struct.unpack(">i", reader.read(4))
                if int.from_bytes(reader.read(size - 4)[:4]) == 196608:
                    break
                connection.sendall(b"N")
            if self.greeting is not None:
                self.greeting(liar, connection)
            connection.sendall(LET_IN + READY)
            while True:
                kind = reader.read(1)
                if kind in (b"", b"X"):
                    return
                (size,) = struct.unpack(">i", reader.read(4))
                reader.read(size - 4)
                if kind in b"QS":  # the end of what is asked
                    self.asked += 1
                    self.lie(liar, connection)


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def liar(database):
    with Liar(database) as made:
        yield made


def sink(liar, timeout=0.1):
    return SqlSink(f"postgresql://ann@127.0.0.1:{liar.port}/x", create_tables=True, timeout=timeout)


LIES = {
    "silence": silent,
    "a close in the middle": closes(COLUMN[:9]),
    "a close at once": closes(b""),
    "what is no frame": says(b"<html>\r\n\r\n"),
    "a frame of no kind": says(frame(b"\x7f", b"x")),
    "a length that is none": says(b"D\xff\xff\xff\xff"),
    "a row without columns": says(ROW + READY),
    "an error that says nothing": says(frame(b"E", b"\0") + READY),
    "an answer to nothing": says(READY),
    "a version that is none": says(COLUMN + ROW + frame(b"C", b"SELECT 1\0") + READY),
    "drips": drips(b"", frame(b"N", b"SNOTICE\0\0")),
    "a frame in drips": drips(b"D" + struct.pack(">i", 2_000_000)),
    "rows without end": endless(COLUMN, ROW),
    "a row without end": endless(COLUMN + b"D" + struct.pack(">i", 2**31 - 1)),
    "notices without end": endless(b"", frame(b"N", b"SNOTICE\0\0")),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_database_that_lies_is_asked_again(database, liar, tmp_path, monkeypatch, lie):
    """F106, F125: already before the sink has asked anything; nothing passes for written, and time and memory have a bound."""
    set_constant(monkeypatch, sql, "ANSWER_BYTES", ROOM)
    database.lie = lie
    waits = "endless" not in lie.__qualname__
    with rigged(tmp_path / "log", sink(liar, 0.1 if waits else 10.0), clock=GoingClock()) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING, rig.runner.statistics().last_error
        assert database.asked
        assert liar.sent < ROOM + BUFFERED


@pytest.mark.parametrize("lie", [silent, drips(b"R"), closes(b"R"), says(b"E<html>")])
def test_a_database_that_does_not_let_the_sink_in_is_asked_again(database, liar, tmp_path, lie):
    """F106, F125: ``connect_timeout`` is 2 s at least."""
    database.greeting = lie
    with rigged(tmp_path / "log", sink(liar), clock=GoingClock()) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.counters.failures)
        assert rig.runner.state is SinkState.RETRYING


def test_a_database_that_drips_holds_neither_close_nor_the_writer(database, liar, tmp_path):
    """F106."""
    database.lie = LIES["a frame in drips"]
    with rigged(tmp_path / "log", sink(liar, 0.5), clock=GoingClock()) as rig:
        runner = rig.runner.start()
        wait_until(lambda: database.asked)
        rig.commit("a")
        runner.close(30)
        assert runner.state is SinkState.STOPPED


def test_statements_of_a_transaction_share_its_bound(database, liar):
    """F106: however many there are, each of which is answered."""
    from transports.sinks.sql_connection import bounded_connection

    database.lie = says(COLUMN + ROW * 1000 + frame(b"C", b"SELECT 1000\0") + READY)
    bound = AnswerBound(30.0, ROOM)
    with bounded_connection(bound, f"host=127.0.0.1 port={liar.port} user=ann", autocommit=True) as made:
        for _ in range(100):
            bound.begin()
            assert len(made.execute(b"select", prepare=False).fetchall()) == 1000
        bound.begin()

        def many():
            for _ in range(100):
                made.execute(b"select", prepare=False)

        with pytest.raises(psycopg.OperationalError, match=f"larger than {ROOM} bytes"):
            many()
        assert made.closed
