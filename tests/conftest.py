"""What holds for all tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.harness import covering, sharing, tiers
from tests.harness.certifying import pytest_pycollect_makeitem
from tests.harness.commands import command_server, script, start
from tests.harness.constants import as_they_are
from tests.harness.debugging import debugged, pytest_runtest_protocol
from tests.harness.leftovers import nothing_is_left_behind
from tests.harness.memory import on_disk, write_into_memory
from tests.harness.missing import tell_missing
from tests.harness.patience import be_patient
from tests.harness.resident import tell_resident
from tests.harness.rewriting import rewrite_share
from tests.harness.scale import LONG, scaled
from tests.harness.sharing import pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "bounds_are_as_they_are",
    "command_server",
    "debugged",
    "earlier_clients_have_taken_nothing",
    "earlier_objects_are_spared",
    "nothing_is_left_behind",
    "on_disk",
    "pytest_collection_modifyitems",
    "pytest_pycollect_makeitem",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
    "script",
    "spark",
    "start",
]

# Here, and not in a directory's own file: ``given`` keeps the profile of the moment in which its module is imported. How
# long an example takes, and how long it takes to make one, is the machine's affair.
settings.register_profile(
    "patient",
    deadline=None,
    max_examples=scaled(100),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not LONG,
    print_blob=True,
)
settings.load_profile("patient")

write_into_memory()
be_patient()

# Virtual machines that live for seconds are quicker with the first compiler alone, and without verifying Spark's classes.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, " ".join(JAVA_OPTIONS))

# A shell without job control lets what it starts in the background ignore interrupts, and so would all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(tiers, "tiers")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.pluginmanager.hasplugin("pytest_cov"):
        covering.measure_once(session.config)
    rewrite_share(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tell_missing(terminalreporter)
    tell_resident(terminalreporter)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects tests without collections of garbage, which would go through ten thousand of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if sharing.ORDER is not None:
        sharing.shuffle(items, sharing.ORDER)
    sharing.sort(items)
    if config.pluginmanager.hasplugin("pytest_cov"):
        covering.choose(items)


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_spared() -> None:
    """Collections of garbage pass over the thousands of tests, and over what earlier modules keep."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def bounds_are_as_they_are() -> Iterator[None]:
    """What `set_bounds` has set for a test is undone behind it."""
    yield
    as_they_are()


@pytest.fixture(autouse=True)
def earlier_clients_have_taken_nothing() -> None:
    """All clients of tests have one address: it would pay for what those of earlier tests took of the processor."""
    shares = sys.modules.get("transports.tcp.shares")
    if shares is not None:
        vars(shares.SHARES).update(vars(shares.Shares()))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The one SparkSession of a run; whoever asks Spark for one gets this one."""
    pytest.importorskip("pyspark")
    from publishers.spark import spark_session

    session = spark_session("penstock-tests", **{"spark.driver.memory": "1g"})
    yield session
    session.stop()
