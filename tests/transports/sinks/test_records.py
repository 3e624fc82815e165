"""One change as the value of one record: the envelope of Debezium, for every operation and image."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from publishers import Change, ChangeLog, Content, Operation
from publishers.model.change import Area
from publishers.views.view import View
from tests.transports.sinks.targets import QUICK, HandClock
from transports.sinks import SinkContext
from transports.sinks.formats import RECORDS, WebhookSource

LETTERS = {
    (Operation.UPSERT, False): "c",
    (Operation.UPSERT, True): "u",
    (Operation.READ, False): "r",
    (Operation.READ, True): "r",
    (Operation.REMOVE, False): "d",
    (Operation.REMOVE, True): "d",
    (Operation.EXPIRE, False): "d",
    (Operation.EXPIRE, True): "d",
    (Operation.TRUNCATE, False): "t",
    (Operation.TRUNCATE, True): "t",
}
"""What Debezium calls an operation, by whether the image before it is known."""
MOMENT = datetime(2031, 2, 3, 4, 5, 6, 789_000, UTC)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    with ChangeLog.open(tmp_path_factory.mktemp("records") / "log", **QUICK) as log:
        yield SinkContext.of(log, "stock", View(Content.BODY), HandClock())


@pytest.mark.parametrize(("operation", "known"), LETTERS)
def test_the_envelope_of_debezium_names_each_operation_as_debezium_does(context, operation, known):
    """F111, F166, F93: and its times are milliseconds, of the commit and of the sending."""
    gone = operation in (Operation.REMOVE, Operation.EXPIRE, Operation.TRUNCATE)
    change = Change(
        7,
        2,
        9,
        MOMENT,
        Area.DATA,
        operation,
        "order",
        "42",
        None if gone else b'{"n":2}',
        b'{"n":1}' if known else None,
    )
    told = json.loads(msgspec.json.encode(RECORDS["debezium"](change, context, WebhookSource("shop"))))
    assert told["op"] == LETTERS[operation, known]
    assert told["before"] == ({"n": 1} if known else None)
    assert told["after"] == (None if gone else {"n": 2})
    source = told["source"]
    assert (source["snapshot"], source["table"], source["position"]) == (
        "true" if operation is Operation.READ else "false",
        "order",
        "7:2",
    )
    assert datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=source["ts_ms"]) == MOMENT
    assert told["ts_ms"] == context.clock.now_us() // 1000
    assert told["transaction"]["id"] == f"{context.log_id}:7"


def test_every_operation_on_rows_has_a_letter():
    rows = set(Operation) - {Operation.TRANSACTION}
    assert set(LETTERS) == set(itertools.product(rows, (False, True)))
