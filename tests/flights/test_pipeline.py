import os

import pytest

from tests.harness.failing import failing
from tests.harness.inside import thread_of

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock_flights import pipeline as module
from penstock_flights.pipeline import Pipeline
from publishers.errors import LogFull
from publishers.spark import JavaMissing


class Context:
    def cancelAllJobs(self):  # noqa: N802 - Spark's name
        """Nothing runs."""


class Session:
    """As much of a SparkSession as a pipeline without a query needs."""

    version = "4.x"
    sparkContext = Context()  # noqa: N815 - Spark's name

    def __init__(self):
        self.stopped = False

    def stop(self):
        self.stopped = True


class Sink:
    def __init__(self, error):
        self.error = error


def ended(pipeline):
    thread_of(pipeline).join(60)
    assert not thread_of(pipeline).is_alive()
    return pipeline


def test_without_java_there_is_one_line_that_says_what_to_install(tmp_path, monkeypatch):

    failing(monkeypatch, module, "spark_session", JavaMissing)
    pipeline = Pipeline(tmp_path / "noise")
    pipeline.start()
    assert "Java 17 or newer is needed" in ended(pipeline).error
    assert "\n" not in pipeline.error


def test_spark_that_was_only_started_can_be_stopped(tmp_path, monkeypatch):
    session = Session()
    monkeypatch.setattr(module, "spark_session", lambda _, **__: session)
    pipeline = Pipeline(tmp_path / "noise")
    pipeline.start()
    pipeline.stop()
    pipeline.stop()
    assert ended(pipeline).error is None
    assert session.stopped


def test_a_pipeline_that_was_never_started_can_be_stopped(tmp_path):
    pipeline = Pipeline(tmp_path / "noise")
    pipeline.stop()
    assert pipeline.statistics.rows == 0


def test_what_is_printed_while_spark_starts_goes_to_a_file(tmp_path, monkeypatch, capfd):
    def noisy(_, **__):
        os.write(2, b"WARNING: what a JVM says\n")
        return Session()

    monkeypatch.setattr(module, "spark_session", noisy)
    pipeline = Pipeline(tmp_path / "noise")
    pipeline.start()
    pipeline.stop()
    ended(pipeline)
    os.write(2, b"and this does not\n")
    assert (tmp_path / "noise").read_text() == "WARNING: what a JVM says\n"
    assert capfd.readouterr().err == "and this does not\n"


@pytest.mark.parametrize(
    ("error", "of_the_sink", "said"),
    [
        (PySparkException("first\n\nsecond\n\tat java.lang"), None, "Spark failed: first second"),
        (PySparkException("wrapped"), LogFull(10, 20), str(LogFull(10, 20))),
        (
            Py4JError("An error occurred.\n: java.io.IOException: full\n\tat java"),
            None,
            "Spark failed: An error occurred. : java.io.IOException: full",
        ),
        (
            PySparkException(
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: java.io.IOException: full "
                "SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: flights"
            ),
            None,
            "Spark failed: java.io.IOException: full",
        ),
        (ValueError("two\nlines"), None, "two lines"),
        (ValueError(), None, "ValueError"),
    ],
)
def test_a_failure_is_told_in_one_line_and_by_its_cause(tmp_path, error, of_the_sink, said):
    pipeline = Pipeline(tmp_path / "noise")
    pipeline._sink = Sink(of_the_sink)
    assert pipeline._described(error) == said
