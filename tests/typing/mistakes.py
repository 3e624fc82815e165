"""What type checkers are to find; each mistake stands in a line that ends in a comment.

mypy does not follow a pipe behind an operator that takes any element, or a lambda; ``flow.Flow`` it does.
"""

from dataclasses import dataclass

import flow
from flow import operators as op
from penstock_cdc.types import ChangeFeed
from publishers import ChangeLog, upsert
from transports import RemoteLog


@dataclass
class Order:
    total: int


def consume(*_: object) -> None: ...


def in_a_pipe(feed: ChangeFeed) -> None:
    flow.pipe(feed, op.filter(lambda change: change.kee == "42"))  # mistake
    flow.pipe(feed, op.map(lambda change: change.versions), op.take(3))  # mistake
    flow.pipe(feed, op.map(len))  # mistake
    flow.pipe(feed, op.take(3), op.map(lambda change: change.versions))  # mistake to pyright
    flow.pipe(feed, op.map(str), op.map(lambda text: text.uper()))  # mistake to pyright
    flow.Flow(feed).take(3).map(str).map(lambda text: text.uper())  # mistake
    sums: flow.Publisher[int] = flow.pipe(feed, op.map(str))  # mistake
    flow.subscribe(sums, consume)


async def in_bodies(log: ChangeLog, remote: RemoteLog) -> None:
    for change in log.changes(as_=Order):
        consume(change.body.total)  # mistake
        consume(change.body and change.body.totals)  # mistake
    async for placed in remote.changes(as_=Order):
        consume(placed.body and placed.body.totals, placed.curser)  # mistake
    log.changes(as_="order")  # mistake
    upsert("order", "1", [1, 2, 3])  # mistake
