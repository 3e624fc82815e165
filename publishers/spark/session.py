"""Builds a SparkSession with the settings that change sinks, their tests and the demo need."""

import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from publishers.spark.inside import has_context
from publishers.spark.java import ensure_java

__all__ = ["SparkSettingWarning", "spark_session"]

_STACK: Final = "-Xss4m"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# Spark option -> (value, what happens without it)
_SETTINGS: Final[dict[str, tuple[str, str]]] = {
    "spark.ui.enabled": ("false", "a web server is started that nobody asked for"),
    "spark.ui.showConsoleProgress": ("false", "progress bars are drawn over what the program prints"),
    "spark.sql.session.timeZone": ("UTC", "timestamps made from text depend on the machine's time zone"),
    "spark.sql.shuffle.partitions": ("2", "every shuffle of a small batch runs 200 tasks"),
    "spark.driver.maxResultSize": (
        "256m",
        "what a job brings may fill the driver's heap before Spark refuses it",
    ),
    "spark.task.maxDirectResultSize": (
        "64m",
        "what a task brings is stored, and fetched through a socket, if it is above a megabyte",
    ),
    "spark.driver.host": ("127.0.0.1", "executors are reached by the machine's name, which may not resolve"),
    "spark.driver.bindAddress": ("127.0.0.1", "the driver listens on every address of the machine"),
}
if hasattr(socket, "AF_UNIX"):
    _SETTINGS["spark.python.unix.domain.socket.enabled"] = (
        "true",
        "each task of Python waits some 40 ms for the acknowledgements of TCP",
    )


class SparkSettingWarning(UserWarning):
    """An existing SparkSession lacks a setting, which cannot or should not change while it runs."""


def spark_session(name: str, *, cores: int = 2, **conf: str) -> SparkSession:
    """Returns the running SparkSession of this process, or a new local one.

    A new session runs in this process and its JVM with ``cores`` threads, in UTC, without web interface and progress bars. Its
    Python workers use this interpreter. Its thread stacks are large enough to stop a query whose function runs a Spark
    action; with the default stack Spark prints a StackOverflowError of a thousand lines. (A sink does not need the larger stack.)
    A running session is returned unchanged, with a :class:`SparkSettingWarning` for each setting that differs.

    Args:
        name: The application's name.
        cores: Threads that run tasks, at least 1.
        **conf: Further Spark options, or other values for the settings above: ``**{"spark.driver.memory": "2g"}``.

    Raises:
        JavaMissing: If no Java 17 or newer is found.
        ValueError: If ``cores`` is below 1.
    """
    if cores < 1:
        raise ValueError(f"cores is {cores!r}, but must be at least 1")
    wanted = {key: value for key, (value, _) in _SETTINGS.items()} | conf
    if has_context():  # the builder would change its session
        existing = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        _warn(existing, wanted)
        return existing
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = f"{_STACK} -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    given = wanted.pop("spark.driver.extraJavaOptions", "")
    settings = SparkConf().setMaster(f"local[{cores}]").setAppName(name).setAll(list(wanted.items()))
    settings.set("spark.driver.extraJavaOptions", f"{options} {given}".rstrip())
    with warnings.catch_warnings():
        # PySpark warns whenever pandas 3 is installed, although nothing here uses pandas.
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        session: SparkSession = SparkSession.builder.config(conf=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _warn(session: SparkSession, wanted: dict[str, str]) -> None:
    """Warns about each setting that the running session lacks, at the caller of :func:`spark_session`."""
    running = session.sparkContext.getConf()
    for key, value in wanted.items():
        found = session.conf.get(key, None) if key.startswith("spark.sql.") else running.get(key)
        if found != value:
            why = _SETTINGS[key][1] if key in _SETTINGS else "it was asked for"
            _show_warning(f"the running SparkSession has {key}={found}, not {value}: {why}")
    if session.sparkContext.pythonExec != sys.executable:
        _show_warning(
            f"the running SparkSession starts Python workers with {session.sparkContext.pythonExec}, not {sys.executable}: they may miss modules"
        )


def _show_warning(text: str) -> None:
    warnings.warn(text, SparkSettingWarning, stacklevel=4)
