"""Tests of a program that writes to a log: they collect its commits as a list, without sleeping.

Run it: pytest -c /dev/null examples/test_orders.py  (so that it needs nothing but pytest; the settings here are those of our own tests)
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_cdc import ChangeLog, Content, Criterion, upsert
from penstock_cdc.testing import collect, collect_async


async def place_order(log: ChangeLog, key: str, total: str) -> int:
    """The code under test, for example the handler of a web application."""
    commit = await log.commit_async([upsert("order", key, {"total": total})])
    return commit.version


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ChangeLog]:
    with ChangeLog.open(tmp_path / "log", sync="os") as log:  # no test needs to survive a power cut
        yield log


def test_an_order_that_was_placed_is_told(log: ChangeLog) -> None:
    version = asyncio.run(place_order(log, "42", "10.00"))
    orders = log.changes(Criterion(entity_types={"order"}), since=version, content=Content.BODY)
    (order,) = collect(orders, 1)
    assert (order.key, order.body) == ("42", {"total": "10.00"})


def test_a_subscriber_that_waits_is_told_of_orders_in_their_order(log: ChangeLog) -> None:
    async def follow() -> list[str | None]:
        orders = log.changes(Criterion(entity_types={"order"}), since=log.head)
        waiting = asyncio.create_task(collect_async(orders, 2))
        for key in ("1", "2"):
            await place_order(log, key, "1.00")
        return [order.key for order in await waiting]

    assert asyncio.run(follow()) == ["1", "2"]
