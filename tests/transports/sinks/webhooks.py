"""Changes for webhooks, and the context of a sink."""

from datetime import UTC, datetime

from publishers import Change, Position
from publishers.model.change import Area, Operation
from publishers.views.view import Content, View
from tests.transports.sinks.targets import HandClock
from transports.sinks import (
    SinkBatch,
    SinkContext,
)

LOOPBACK = ["127.0.0.0/8", "::1/128"]
LOG_ID = "7f3c0000000000000000000000000001"
EPOCH = "3.AAAAAAAAAAE"
MOMENT = datetime(2025, 11, 20, 8, 0, 0, 123456, UTC)


def change(index=1, version=118, **fields):
    given = {
        "count": 3,
        "timestamp": MOMENT,
        "area": Area.DATA,
        "operation": Operation.UPSERT,
        "entity_type": "product",
        "key": "5",
        "body_bytes": b'{"price":"12.00"}',
    }
    return Change(version=version, index=index, **{**given, **fields})


CHANGES = (
    change(
        1,
        before_bytes=b'{"price":"10.00"}',
        changed=("price",),
        meta_bytes=b'{"request_id":"r-1"}',
        entry_version=118,
    ),
    change(2, operation=Operation.REMOVE, key="6", body_bytes=None, before_bytes=b'{"price":"3.00"}'),
)
BATCH = SinkBatch(CHANGES, Position(120))


def context(view=None, generation=7):
    return SinkContext(
        name="orders-webhook",
        log_name="orders",
        log_id=LOG_ID,
        view=view or View(Content.BODY),
        generation=generation,
        clock=HandClock(),
        token=lambda position: f"{LOG_ID}:{EPOCH}:{position}",
        position_of=lambda text: Position(*map(int, text.split(":")[2:])),
        change_id=lambda one: f"{LOG_ID}:{EPOCH}:{one.position}",
    )
