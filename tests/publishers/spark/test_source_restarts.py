"""A streaming query that runs on while the server that it reads from is killed and started again."""

import asyncio

from penstock_cdc import connect
from publishers import upsert
from tests.publishers.spark.servers import processes
from tests.publishers.support import wait_until


def test_a_query_that_runs_goes_on_over_kills_of_the_server_with_each_change_once(spark, tmp_path):
    """F152: three kills in the middle of its batches; the query is never started again."""
    batches = {}

    def keep(batch, number):
        batches[number] = [(row.version, row.key) for row in batch.collect()]

    def found():
        return sorted(row for rows in batches.values() for row in rows)

    async def commit(url, keys):
        async with connect(url) as log:
            return [(await log.commit_async([upsert("order", key, {})])).version for key in keys]

    with processes(tmp_path / "log") as serve:
        url = serve()
        frame = spark.readStream.format("penstock").options(since="earliest", area="DATA").load(url)
        writer = frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(processingTime="200 milliseconds").start()
        try:
            want = []
            for life in range(4):
                keys = [f"{life}-{number}" for number in range(20)]
                want += zip(asyncio.run(commit(url, keys)), keys, strict=True)
                if life == 0:
                    wait_until(found, query.exception, timeout=300)
                if life < 3:
                    assert serve() == url  # which kills the one before
            wait_until(
                lambda: len(found()) >= len(want) or query.exception() is not None,
                lambda: (query.exception(), len(found())),
                timeout=300,
            )
            assert query.exception() is None
            assert query.isActive
            assert found() == sorted(want)
        finally:
            query.stop()
