"""Keeps what a Java virtual machine has learned of Spark's classes, so that the next one starts in half the time.

python -m tests.harness.archive FILE
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["ARCHIVE", "QUICK", "options"]

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Virtual machines that live for seconds are quicker with the first compiler alone."""

_LESSON: Final = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(100).selectExpr("id", "cast(id as string) name").write.parquet(sys.argv[1] + "/rows")
spark.stop()
"""


def options() -> str:
    """For the virtual machines of tests. One of another version passes over the archive, and is to say nothing of that."""
    return (
        f"{QUICK} -Xshare:auto -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else QUICK
    )


def main() -> None:
    """Lets Spark start and write a file, and keeps what was loaded; without Java there is no archive, and no error."""
    (path,) = sys.argv[1:]
    made = Path(f"{path}.{os.getpid()}")
    taught = {"SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={made} -Xlog:disable"}
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-c", _LESSON, scratch]
        done = subprocess.run(command, env=os.environ | taught, capture_output=True, check=False)
    if done.returncode == 0 and made.exists():
        made.replace(path)
    else:
        made.unlink(missing_ok=True)
        sys.stderr.write("no archive of Spark's classes was made; tests take longer\n")


if __name__ == "__main__":
    main()
