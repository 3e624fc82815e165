"""The recipes of ``foreachBatch``, followed by two queries, or by two threads, at once."""

from functools import partial

import pytest

from publishers.spark import ChangeSink
from tests.publishers.spark.conftest import Source
from tests.publishers.support import in_threads

pytestmark = pytest.mark.timeout(600)

BATCHES, ROWS = 3, 4


@pytest.fixture
def sources(spark, tmp_path):
    """Two streams; the rows of the second one have other ids."""
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(Source(spark, tmp_path / name))
    for number, source in enumerate(made):
        for batch in range(BATCHES):
            first = (number * BATCHES + batch) * ROWS
            source.add(*({"id": first + row, "name": f"n{row}"} for row in range(ROWS)))
    yield made
    for query in spark.streams.active:
        query.stop()


@pytest.mark.parametrize(
    ("shared", "staging"), [(False, "executors"), (True, "driver")], ids=["a sink each", "one sink"]
)
def test_two_queries_at_once_commit_each_row_once(shared, staging, sources, log, stored):
    sink = ChangeSink(log, entity_type="n", key="id", staging=staging)
    sinks = [sink, sink if shared else ChangeSink(log, entity_type="n", key="id", staging=staging)]
    in_threads(*(partial(source.run, sink) for source, sink in zip(sources, sinks, strict=True)), timeout=300)
    keys = [int(change.key) for change in stored(log)]
    assert sorted(keys) == list(range(2 * BATCHES * ROWS))
    for number in range(2):
        first, last = number * BATCHES * ROWS, (number + 1) * BATCHES * ROWS
        batches = [key // ROWS for key in keys if first <= key < last]
        assert batches == sorted(batches)
