"""F153: a sink that commits through a server, from any process."""

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

import transports
from penstock_cdc.errors import InvalidOption, TransactionTooLarge
from publishers import ChangeLog, Content, Operation
from publishers.errors import AdmissionStopped
from publishers.spark import BatchChanged, ChangeSink, CheckpointLost
from publishers.spark.queries import gate_of
from tests.harness.inside import connection_of, link_of, socket_of
from tests.harness.ports import free_port
from tests.harness.scale import SCALE
from tests.publishers.spark.servers import ROOT, processes
from transports import ConnectionLost, Grant, Limits, LogAction, RemoteError

WRITERS = Grant({LogAction.READ, LogAction.WRITE})
pytestmark = pytest.mark.timeout(900)


@contextmanager
def serving(path, port=None, grant=WRITERS):
    port = free_port() if port is None else port
    with ChangeLog.open(path) as log, transports.serve(log, port=port, authorise=grant) as server:
        yield server, log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "served"


def kept(path):
    with ChangeLog.open(path, read_only=True) as log:
        found = log.history(None, limit=1_000_000, content=Content.BODY).changes
        return [(change.version, change.key, change.operation) for change in found if change.index]


def test_batches_are_committed_once_through_a_server_that_is_stopped_in_the_middle(source, path):
    """F153: the query notices nothing, and what was not answered is sent again under its number."""
    source.add_numbers(6, 10)
    halted, gone = Event(), Event()
    with serving(path) as (server, _):
        url = server.url
        sink = pickle.loads(
            pickle.dumps(ChangeSink(url, entity_type="n", key="id", order_by="id", body=["id"]))
        )

        def commit(frame, batch):
            if batch == 3:
                halted.set()
                assert gone.wait(60)
            sink(frame, batch)

        query = source.start(commit)
        assert halted.wait(180)
    gone.set()
    with serving(path, port=int(url.rpartition(":")[2].partition("/")[0])):
        assert query.awaitTermination(180)
        assert query.exception() is None
        source.forget_newest_commit()
        source.run(sink)
    assert (sink.statistics().batches, sink.statistics().repeated, sink.statistics().rows) == (6, 1, 60)
    assert kept(path) == [(1 + n // 10, str(n), Operation.UPSERT) for n in range(60)]


def test_every_operation_reaches_the_server(spark, path):
    rows = [(1, "upsert", "a", None), (2, "delete", None, (2, "b")), (3, "expire", None, None), (4, "truncate", None, None), (5, "upsert", "ñ", (5, "o"))]  # fmt: skip
    frame = spark.createDataFrame(
        rows, "id INT, op STRING, name STRING, old STRUCT<id: INT, name: STRING>"
    ).coalesce(1)
    with serving(path) as (server, log):
        sink = ChangeSink(server.url, entity_type="n", key="id", operation_column="op", order_by=(), before="old", producer="p", log_name=log.name)  # fmt: skip
        sink(frame, 0)
        found = log.history(None, content=Content.BODY).changes
    told = found[0].meta["spark"]
    assert (told["sink"], told["batch"], told["rows"], told["content"][:2]) == ("n", 0, 5, "5:")
    assert [(c.operation.name, c.key, c.body, c.before) for c in found[1:]] == [
        ("UPSERT", "1", {"id": 1, "name": "a"}, None),
        ("REMOVE", "2", None, {"id": 2, "name": "b"}),
        ("EXPIRE", "3", None, None),
        ("TRUNCATE", None, None, None),
        ("UPSERT", "5", {"id": 5, "name": "ñ"}, {"id": 5, "name": "o"}),
    ]


def test_other_rows_under_a_number_that_the_server_has_are_refused_and_not_dropped(spark, path):
    """F153: a lost checkpoint; the same rows in any order are a repetition."""
    with serving(path) as (server, log):

        def sink():
            return ChangeSink(server.url, entity_type="n", key="id", producer="p")

        for batch in range(3):
            sink()(spark.range(batch * 4, batch * 4 + 4, 1, 2), batch)
        again = sink()
        again(spark.range(8, 12).orderBy(F.desc("id")), 2)
        assert (again.statistics().batches, again.statistics().repeated) == (0, 1)
        for batch in (0, 2):
            with pytest.raises(
                BatchChanged, match=f"batch {batch} of producer='p' has other rows than version {batch + 1}"
            ):
                sink()(spark.range(100, 104), batch)
        with (
            ChangeLog.open(path.with_name("other")) as other,
            transports.serve(other, authorise=WRITERS, port=0) as second,
        ):
            elsewhere = ChangeSink(second.url, entity_type="n", key="id", producer="p")
            elsewhere(spark.range(4), 5)
            with pytest.raises(CheckpointLost, match="whose last batch in the log is further on"):
                elsewhere(spark.range(4), 1)
        row = spark.range(1).withColumn("text", F.repeat(F.lit("x"), 2**21))
        with pytest.raises(TransactionTooLarge, match="a change has 2097279 bytes as a message"):
            sink()(row, 9)
        assert log.head.version == 4


def interrupted(sink, places, restart):
    """Has the server restarted when it has so many parts of a batch, on one connection after the other; answers what is left."""
    connect, left = sink._log._connect, list(places)

    def connecting(url, **options):
        remote = connect(url, **options)
        appends = link_of(remote)._session.appends
        spooled, due = appends.spooled, left[:1]

        def told(reply):
            if due and reply.parts >= due[0]:
                due.clear()
                left.pop(0)
                restart(remote)
            return spooled(reply)

        appends.spooled = told
        return remote

    sink._log._connect = connecting
    return left


def test_a_batch_larger_than_a_message_is_one_version_although_the_server_is_restarted_between_its_parts(
    spark, path
):
    """F153: what came is dropped with the server, all is sent again, and is written once."""
    limits = Limits(message_bytes=5_000, append_bytes=20_000)
    with ChangeLog.open(path) as log, ExitStack() as stack:
        servers = [transports.serve(log, authorise=WRITERS, limits=limits, port=0)]
        port = int(servers[0].url.rpartition(":")[2].partition("/")[0])
        stack.callback(lambda: [server.stop() for server in servers])

        def restart(remote):
            socket_of(connection_of(link_of(remote))).transport.abort()
            servers[-1].stop()
            servers.append(transports.serve(log, authorise=WRITERS, limits=limits, port=port))

        sink = ChangeSink(servers[0].url, entity_type="n", key="id", producer="p")
        left = interrupted(sink, (3, 20), restart)
        sink(spark.range(2_000), 0)
        assert (left, len(servers), log.head.version) == ([], 3, 2)
        assert sorted(int(key) for _, key, _ in kept(path)) == list(range(2_000))
        sink(spark.range(2_000).orderBy(F.desc("id")), 0)
        assert (sink.statistics().batches, sink.statistics().repeated, log.head.version) == (1, 1, 2)
        lost = ChangeSink(servers[0].url, entity_type="n", key="id", producer="q")
        left = interrupted(
            lost, [1] * 9, lambda remote: socket_of(connection_of(link_of(remote))).transport.abort()
        )
        with pytest.raises(ConnectionLost):
            lost(spark.range(2_000), 0)
        assert (len(left), log.head.version) == (1, 2)


def test_a_server_that_does_not_answer_or_refuses_fails_the_batch(source, spark, path):
    """F153: in time, and by its own words; ``sink.stop`` does not wait for it."""
    source.add_numbers(1, 3)
    with serving(path, grant=Grant({LogAction.READ})) as (server, _):
        url = server.url
        refused = ChangeSink(url, entity_type="n", key="id")
        with pytest.raises(StreamingQueryException, match="RemoteError: FORBIDDEN"):
            source.start(refused).awaitTermination(180)
        assert isinstance(refused.error, RemoteError)
    with pytest.raises(ConnectionLost):
        ChangeSink(url, entity_type="n", key="id", producer="p", stall_timeout=0)(spark.range(1), 0)
    sink = ChangeSink(url, entity_type="n", key="id", producer="p", name="never")
    gate = gate_of("never")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sink, spark.range(1), 0)
        gate.set()
        with pytest.raises(AdmissionStopped):
            waiting.result(60)


@pytest.mark.parametrize(
    ("log", "arguments", "message"),
    [
        ("http://host", {}, "log is 'http://host', but must be a ChangeLog that is open for writing in this process, or the address"),
        (7, {}, "log is 7"),
        ("ws://host", {"tell_schema": True}, "tell_schema is True, but must be False"),
        ("ws://host", {"on_bad_row": "dead_letter"}, "on_bad_row is 'dead_letter', but must be 'fail' or 'skip'"),
        (None, {"token": "x"}, "token is 'x', but must be left out"),
        (None, {"log_name": "x"}, "log_name is 'x', but must be left out"),
    ],
)  # fmt: skip
def test_arguments_that_a_server_or_a_log_cannot_have_are_refused(tmp_path, log, arguments, message):
    with ChangeLog.open(tmp_path / "log") as own, pytest.raises(InvalidOption, match=message):
        ChangeSink(own if log is None else log, entity_type="n", key="id", **arguments)


@pytest.mark.crash
@pytest.mark.skipif(SCALE <= 1, reason="commits a batch of 40 MiB: PENSTOCK_TEST_SCALE=2")
def test_a_batch_of_40_mib_is_written_once_although_its_server_is_killed_between_its_parts(spark, path):
    """F153: at the beginning, in the middle, and when it has nearly all of it."""
    rows = spark.range(0, 300_000, 1, 4).withColumn("text", F.concat(F.col("id"), F.repeat(F.lit("x"), 90)))
    with processes(path) as serve:
        sink = ChangeSink(serve(), entity_type="n", key="id", producer="p")
        left = interrupted(sink, (2, 90, 170), lambda _: serve())
        assert not sink.statistics().elsewhere
        sink(rows, 0)
        assert left == []
        sink(rows, 0)
    assert (sink.statistics().batches, sink.statistics().repeated) == (1, 1)
    found = [(version, int(key)) for version, key, _ in kept(path)]
    assert sorted(found) == [(1, number) for number in range(300_000)]


CONNECT = textwrap.dedent(
    """
    import os, sys
    directory, url = sys.argv[1:3]
    from pyspark.sql import SparkSession
    from publishers.spark import ChangeSink
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    rows = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(directory + "/source")
    for _ in range(2):
        sink = ChangeSink(url, entity_type="n", key="id", name="connected", order_by="id", body=["id", "name"])
        query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", directory + "/checkpoint")
        query = query.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        assert query.exception() is None, query.exception()
        assert (sink.statistics().elsewhere, sink.statistics().batches) == (True, 0)
    query = rows.writeStream.foreachBatch(ChangeSink(url, entity_type="n", key="id")).trigger(availableNow=True).start()
    try:
        query.awaitTermination(300)
    except Exception as error:
        assert "producer is None, but must be given" in str(error), error
    print("done", flush=True)
    os._exit(0)  # its server would be waited for
    """
)


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.skipif(
    SCALE <= 1 or find_spec("grpc") is None,
    reason="starts a server of Spark Connect: PENSTOCK_TEST_SCALE=2, and grpcio",
)
def test_a_query_of_spark_connect_commits_through_a_server_that_is_killed(source, path):
    """F153: in a worker of Spark's server, which is given the sink as a pickle."""
    source.add_numbers(8, 10)
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYSPARK_PYTHON": sys.executable,
    }
    with processes(path) as serve:
        done = subprocess.Popen([sys.executable, "-c", CONNECT, str(source.files.parent), serve()], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        said = threading.Thread(target=lambda: setattr(done, "said", done.communicate(timeout=800)))
        said.start()
        for version in (2, 5):
            while done.poll() is None and (not kept(path) or kept(path)[-1][0] < version):
                Event().wait(0.05)
            serve()
        said.join(800)
    assert done.said[0].strip() == "done", done.said[1][-4000:]
    assert [(version, key) for version, key, _ in kept(path)] == [(1 + n // 10, str(n)) for n in range(80)]


def test_the_statistics_say_that_another_process_has_the_sink():
    """F153: Spark Connect pickles a sink; the one that stays behind counts nothing."""
    sink = ChangeSink("ws://127.0.0.1:9/ws", entity_type="n", key="id")
    assert not sink.statistics().elsewhere
    assert not pickle.loads(pickle.dumps(sink)).statistics().elsewhere
    assert sink.statistics().elsewhere
