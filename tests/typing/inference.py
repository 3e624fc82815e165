"""What type checkers are to infer, by themselves; nothing of it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

import msgspec
from pydantic import BaseModel

import flow
from flow import operators as op
from penstock_cdc.types import ChangeFeed, Commit, Log, ModelChange, ModelFeed
from publishers import Change, ChangeLog, Criterion, upsert
from transports import RemoteChange, RemoteLog, RemoteModelChange


@dataclass
class Order:
    total: Decimal


class Customer(msgspec.Struct):
    name: str


def consume(_: object) -> None: ...


class Visit(BaseModel):
    page: str


def of_a_pipe(feed: ChangeFeed) -> None:
    sound = flow.pipe(feed, op.filter(lambda change: change.key == "42"))
    assert_type(sound, flow.Publisher[Change])
    versions = flow.pipe(feed, op.map(lambda change: change.version))
    assert_type(versions, flow.Publisher[int])
    assert_type(flow.pipe(versions, op.map(lambda version: [version])), flow.Publisher[list[int]])
    texts = flow.pipe(
        feed, op.filter(lambda change: change.index > 0), op.map(lambda change: str(change.key))
    )
    assert_type(texts, flow.Publisher[str])
    lengths = flow.pipe(feed, op.retry(3), op.map(str), op.map(len), op.skip(1), op.take(3), op.timeout(1.0))
    assert_type(lengths, flow.Publisher[int])
    pages = flow.pipe(feed, op.map(str), op.limit_rate(8), op.buffer(3), op.map(lambda page: page[0]))
    assert_type(flow.pipe(feed, op.buffer(3)), flow.Publisher[list[Change]])
    flow.subscribe(pages, consume)
    assert_type(flow.pipe(versions, op.scan(lambda total, version: total + version, 0)), flow.Publisher[int])
    assert_type(flow.pipe(versions, op.take_while(lambda version: version < 9)), flow.Publisher[int])
    assert_type(flow.pipe(feed, op.flat_map(lambda _: versions)), flow.Publisher[int])
    assert_type(flow.pipe(feed, op.tap(lambda change: consume(change.key))), flow.Publisher[Change])
    assert_type(flow.pipe(feed, op.distinct_until_changed(lambda change: change.key)), flow.Publisher[Change])
    assert_type(op.take(3)(versions), flow.Publisher[int])


def of_a_chain(feed: ChangeFeed) -> None:
    chain = flow.Flow(feed).filter(lambda change: change.index > 0).map(lambda change: change.version)
    assert_type(chain.map(lambda version: [version]).take(3), flow.Flow[list[int]])


async def of_a_remote_feed(log: RemoteLog) -> str:
    async for change in log.changes():
        assert_type(change, RemoteChange)
        assert_type(change.body, Any)
        return change.cursor
    async for placed in log.changes(since=4, as_=Order):
        assert_type(placed, RemoteModelChange[Order])
        assert_type(placed.body, Order | None)
        return placed.cursor
    return ""


def of_bodies(log: ChangeLog) -> None:
    orders = log.changes(Criterion(entity_types={"order"}), since="earliest", as_=Order)
    assert_type(orders, ModelFeed[ModelChange[Order]])
    for change in orders:
        assert_type(change.body, Order | None)
        assert_type(change.before, Order | None)
    totals = flow.pipe(orders, op.map(lambda change: change.body.total if change.body else Decimal()))
    assert_type(totals, flow.Publisher[Decimal])
    models: dict[str, type[Order | Customer | Visit]] = {"order": Order, "customer": Customer, "visit": Visit}
    for one in log.changes(as_=models):
        assert_type(one.body, Order | Customer | Visit | None)
    for other in log.changes(as_={"order": Order, "visit": Visit}):
        if isinstance(other.body, Order):
            assert_type(other.body.total, Decimal)


def of_writing(log: ChangeLog, orders: Sequence[Order]) -> None:
    with log.transaction() as tx:
        tx.upsert("order", "1", orders[0])
        tx.upsert("customer", "1", Customer("Ann"))
        tx.upsert("visit", "1", Visit(page="/"))
    log.commit([upsert("order", "2", order, before=orders[0], changed="auto") for order in orders])


async def of_either(local: ChangeLog, remote: RemoteLog) -> None:
    either: list[Log] = [local, remote]
    for log in either:
        async for change in log.changes(Criterion(entity_types={"order"}), since="earliest", on_gap="jump"):
            assert_type(change, Change)
        assert_type(await log.commit_async([upsert("order", "1", {})], producer=("etl", 1)), Commit)
        async with log.transaction(meta={"user": "ann"}) as tx:
            tx.upsert("order", "1", {})
