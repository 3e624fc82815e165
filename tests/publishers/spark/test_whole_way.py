"""The same digest on every path, under kills of the driver, of executors and of the server, and ordinary stops.

``PENSTOCK_TEST_SCALE`` says how many there are: one in a commit's run, and 64 in long ones, in which there is also a cluster of processes,
and a session of the user's own that is stopped inside its jobs. Each comes behind a commit, by up to a third of a second.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event

import pyspark
import pytest

from publishers import ChangeLog
from publishers.errors import PenstockError
from tests.harness.scale import LONG, scaled
from tests.publishers.spark.servers import ROOT, processes

BATCHES, ROWS = 12, 50
LONG_ONLY = pytest.mark.skipif(not LONG, reason="starts many JVMs: PENSTOCK_TEST_SCALE=2")
pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(3000)]

DRIVER = textwrap.dedent(
    """
    import asyncio, json, signal, sys, zlib
    from contextlib import ExitStack
    from threading import Thread
    import flow, transports
    from pyspark.sql import functions as F
    from publishers import ChangeLog, Content, Criterion
    from publishers.spark import ChangeSink, spark_session
    directory, master, url, staging = sys.argv[1:5]  # without a url the log is this process's own
    data, body = Criterion(areas=["DATA"]), Content.BODY
    rows = "id BIGINT, name STRING"

    def main():
        spark = spark_session("whole way", cores=1, **{"spark.master": master, "spark.executor.memory": "512m"})
        print(json.dumps({"application": spark.sparkContext.applicationId}), flush=True)
        log = ChangeLog.open(directory + "/log", read_only=bool(url))
        sink = ChangeSink(url or log, entity_type="n", key="id", order_by="id", body=["id", "name"], staging=staging)
        files = spark.readStream.schema(rows).option("maxFilesPerTrigger", 1).json(directory + "/source")
        query = (
            files.writeStream.foreachBatch(lambda frame, batch: sink(frame.repartition(4), batch))
            .option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start()
        )
        stopping = []

        def stop(*_):
            stopping.append(Thread(target=sink.stop, args=[query]))
            stopping[-1].start()

        signal.signal(signal.SIGTERM, stop)
        query.awaitTermination()
        for thread in stopping:
            thread.join()
        if not stopping:
            print(json.dumps({"digests": digests_of(spark, log)}), flush=True)
        spark.stop()

    def digests_of(spark, log):
        digests = {}

        def add(name, rows):
            crc = count = 0
            for key, body in rows:
                count += 1
                crc = zlib.crc32(f"{key} {body}".encode(), crc)
            digests[name] = [count, crc]

        computed = spark.read.schema(rows).json(directory + "/source").orderBy("id")
        add("spark", ((str(row.id), json.dumps({"id": row.id, "name": row.name}, ensure_ascii=False, separators=(",", ":"))) for row in computed.collect()))
        add("log", ((one.key, one.body_bytes.decode()) for one in log.history(data, limit=100_000, content=body).changes))
        until = log.head.version - 1
        add("subscriber", ((one.key, one.body_bytes.decode()) for one in log.changes(data, since="earliest", until=until, content=body)))

        async def follow(url):
            async with transports.connect(url) as remote:
                feed = remote.changes(data, since="earliest", until=until, content=body)
                async with flow.aiter(feed, prefetch=64) as found:
                    return [(one.key, one.body_bytes.decode()) async for one in found]

        with ExitStack() as stack:
            add("client", asyncio.run(follow(url or stack.enter_context(transports.serve(log, port=0)).url)))
        where = url or directory + "/log"
        changes = spark.read.format("penstock").option("area", "DATA").load(where).orderBy("version", "index")
        add("source", ((row.key, row.body) for row in changes.collect()))
        typed = spark.read.format("penstock").options(schema="entity", entity_type="n")
        if url:  # to whose log no schema was told
            typed = typed.schema(rows + ", _key STRING, _commit_version BIGINT, _index BIGINT")
        typed = typed.load(where).orderBy("_commit_version", "_index")
        typed = typed.select("_key", F.to_json(F.struct("id", "name")).alias("body"))
        add("typed", ((row._key, row.body) for row in typed.collect()))
        return digests

    main()
    """
)


class Driver:
    """A driver in a process of its own, and what it has said; none of its processes outlives the ``with`` block."""

    def __init__(self, directory, master, url, staging):
        self.directory = directory
        self._errors = directory / "errors"
        self._over = False
        environ = os.environ | {"PYTHONPATH": str(ROOT)}
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(directory), master, url, staging],
                env=environ, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if self._over:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with its JVM and its executors
        self.process.communicate()
        if error is not None:
            error.add_note(self.errors())

    def head(self):
        with suppress(PenstockError), ChangeLog.open(self.directory / "log", read_only=True) as log:
            return log.head.version
        return 0

    def reach(self, version):
        """Waits until a version was committed; False if the driver has ended before.

        Nothing but the bound of the whole test ends this: a cluster of JVMs takes minutes to start where the processors are busy.
        """
        while self.head() <= version:
            if self.process.poll() is not None:
                return False
            Event().wait(0.05)
        return True

    def kill(self, *, kindly=False):
        """Ends it, kindly as an operator does; another one may be started after that."""
        self.process.send_signal(signal.SIGTERM if kindly else signal.SIGKILL)
        return self.end()

    def kill_executor(self):
        """Kills one of its executors, if there is any."""
        for pid in random.sample(found := self.executors(), min(1, len(found))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def executors(self):
        """The processes of executors, which descend from this driver."""
        found, waiting = [], [self.process.pid]
        while waiting:
            with suppress(OSError):
                pid = waiting.pop()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def errors(self):
        return self._errors.read_text()[-4000:]

    def end(self):
        """What it has said, once it is over."""
        out, _ = self.process.communicate()
        self._over = True
        told = {}
        for line in out.splitlines():
            told |= json.loads(line)
        if "application" in told:  # of which a cluster keeps what executors have said
            shutil.rmtree(Path(pyspark.__file__).parent / "work" / told["application"], ignore_errors=True)
        return told


def put_source(directory, batches):
    directory.mkdir()
    for batch in range(batches):
        rows = [{"id": batch * ROWS + n, "name": f"é{n}"} for n in range(ROWS)]
        path = directory / f"{batch:03}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_700_000_000 + batch,) * 2)


@pytest.mark.parametrize(
    ("master", "served", "staging", "kills", "victims"),
    [
        ("local[2]", True, "driver", 4, ("server", "driver", "server", "stop")),
        pytest.param("local[2]", False, "driver", 3, ("driver", "stop"), marks=LONG_ONLY),
        pytest.param("local-cluster[2,1,512]", True, "driver", 6, ("executor", "server", "driver"), marks=LONG_ONLY),
        pytest.param("local-cluster[2,1,512]", False, "executors", 3, ("executor", "driver", "executor", "stop"), marks=LONG_ONLY),
    ],
)  # fmt: skip
def test_the_digest_is_the_same_on_every_path_whatever_was_killed(
    tmp_path, master, served, staging, kills, victims
):
    """F152, E64: Spark's own rows, the log, a subscriber, a client of a server, and both forms of the source."""
    kills = scaled(kills)
    batches = max(scaled(BATCHES), kills)
    put_source(tmp_path / "source", batches)
    with ExitStack() as stack:
        serve = stack.enter_context(processes(tmp_path / "log")) if served else str
        url = serve()

        def start():
            return stack.enter_context(Driver(tmp_path, master, url, staging))

        driver = start()
        for number, version in enumerate(sorted(random.sample(range(batches), kills))):
            if not driver.reach(version):
                break
            Event().wait(random.random() / 3)
            victim = victims[number % len(victims)]
            if victim == "server":
                serve()
            elif victim == "executor":
                driver.kill_executor()
            elif driver.process.poll() is None:
                driver.kill(kindly=victim == "stop")
                driver = start()
        told = driver.end()
        if "digests" not in told:  # the last one was killed
            driver = start()
            told = driver.end()
    assert driver.process.returncode == 0, driver.errors()
    assert told["digests"]["spark"][0] == batches * ROWS
    assert not list((tmp_path / "log").glob("staged-*"))
    assert {name: tuple(one) for name, one in told["digests"].items()} == dict.fromkeys(
        ("spark", "log", "subscriber", "client", "source", "typed"), tuple(told["digests"]["spark"])
    )


STOPPING = textwrap.dedent(
    """
    import sys
    from threading import Event
    from pyspark.sql import SparkSession, functions as F
    from publishers import ChangeLog
    from publishers.spark import ChangeSink, ensure_java
    ensure_java()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    directory = sys.argv[1]
    sleep = F.expr("value + length(coalesce(reflect('java.lang.Thread', 'sleep', 300L), ''))")
    with ChangeLog.open(directory + "/log") as log:
        sink = ChangeSink(log, entity_type="n", key="value")
        for number in range(3):
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
            writer = rows.writeStream.foreachBatch(lambda frame, batch: sink(frame.withColumn("value", sleep), batch))
            query = writer.option("checkpointLocation", f"{directory}/{number}").start()
            while not spark.sparkContext.statusTracker().getActiveJobsIds():
                Event().wait(0.02)
            Event().wait(0.3)
            query.stop()
            assert not query.isActive and query.exception() is None
    print("stopped")
    """
)


@LONG_ONLY
def test_a_session_of_the_users_own_is_stopped_inside_jobs_without_an_error_of_its_stack(tmp_path):
    """F152: with the stack that threads of Java have by default."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", STOPPING, str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.stdout.strip() == "stopped", done.stderr[-4000:]
    assert "StackOverflowError" not in done.stderr
