"""Two attempts of one staging task, by the speculation of a cluster whose workers are at two addresses of this machine.

Spark gives no host a second attempt of a task, so a cluster of one address has none.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from publishers.spark import ensure_java
from tests.harness.ports import free_port
from tests.harness.scale import LONG
from tests.publishers.spark.servers import ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not LONG, reason="starts six JVMs: PENSTOCK_TEST_SCALE=2"),
]

ROWS = 800  # in two partitions
DRIVER = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from threading import Event
    from pyspark import TaskContext
    from pyspark.sql import functions as F
    from publishers import ChangeLog, Criterion
    from publishers.spark import ChangeSink, spark_session

    directory, master, rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

    def staged():
        return sorted(path.name.rpartition("-")[0] for path in (directory / "log").glob("staged-*"))

    def until(condition):
        while not condition():
            Event().wait(0.02)

    def text(number):
        '''The first attempt at the last row waits until the batch is committed; the second until both have written.'''
        if number == rows - 1:
            if TaskContext.get().attemptNumber() == 0:
                until((directory / "committed").exists)
            else:
                until(lambda: any(staged().count(part) == 2 for part in staged()))
                (directory / "both").touch()
        return f"{number:1000}"

    settings = {
        "spark.master": master,
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.efficiency.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    }
    spark = spark_session("speculation", **settings)
    text = F.udf(text, "string", useArrow=False)  # by 100 rows, so that those before the last one are staged
    with ChangeLog.open(directory / "log", frame_bytes=1024) as log:
        sink = ChangeSink(log, entity_type="n", key="id", producer="p", staging="executors")
        sink(spark.range(0, rows, 1, 2).withColumn("text", text("id")), 0)
        left = [staged()]
        (directory / "committed").touch()
        sink(spark.range(rows, 2 * rows, 1, 2).withColumn("text", F.lit("y")), 1)
        left.append(staged())
        found = log.history(Criterion(areas=["DATA"]), limit=10 * rows).changes
        told = {"left": left, "keys": [int(change.key) for change in found], "rows": sink.statistics().rows}
    spark.stop()
    print(json.dumps(told))
    """
)


@contextmanager
def cluster(directory, hosts):
    """A master of Spark's own cluster with a worker at each of some addresses; tells its address."""
    ensure_java()
    home = Path(pyspark.__file__).parent
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false",
    }
    master = f"127.0.0.1:{free_port()}"
    host, _, port = master.partition(":")
    with ExitStack() as stack:

        def start(kind, host, *arguments):
            errors = stack.enter_context((directory / "errors").open("a"))
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host, "--webui-port", "0", *arguments],
                env=environ | {"SPARK_LOCAL_IP": host}, stdout=errors, stderr=errors, start_new_session=True,
            )  # fmt: skip
            stack.callback(end, process)

        start("master.Master", host, "--port", port)
        for worker in hosts:
            work = str(directory / worker)
            start("worker.Worker", worker, "--cores", "1", "--memory", "600m", "--work-dir", work, f"spark://{master}")  # fmt: skip
        yield f"spark://{master}"


def end(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with the executors of a worker
    process.wait()


def test_two_attempts_of_a_staging_task_commit_each_row_once_and_leave_no_file(tmp_path):
    with cluster(tmp_path, ["127.0.0.1", "127.0.0.2"]) as master:
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, str(tmp_path), master, str(ROWS)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=1000,
            check=False,
        )
    assert driver.returncode == 0, driver.stderr[-4000:] + (tmp_path / "errors").read_text()[-4000:]
    told = json.loads(driver.stdout.splitlines()[-1])
    assert (tmp_path / "both").exists()
    assert told == {"left": [[], []], "keys": list(range(2 * ROWS)), "rows": 2 * ROWS}
