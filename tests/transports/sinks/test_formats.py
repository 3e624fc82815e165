"""What the changes of a transaction have in common is made once, and is right for each of them."""

import json

import msgspec

from publishers import ChangeLog, Content, Operation, remove, upsert
from publishers.views.view import View
from tests.transports.sinks.targets import QUICK, HandClock
from transports.sinks import SinkContext
from transports.sinks.formats import change_object, change_objects


def test_changes_of_several_transactions_are_what_each_is_alone(tmp_path):
    """F22, F93, F94, F97: ids and times too, also where rows of a snapshot, which have their own, stand between."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        context = SinkContext.of(log, "stock", View(Content.BODY), HandClock())
        log.commit([upsert("order", f"é{n}", {"n": n}) for n in range(12)])
        log.commit([remove("order", "é1"), upsert("order", "2", {})])
        changes = list(log.history(None, "earliest", content=Content.BODY).changes)
        changes[5:5] = [
            msgspec.structs.replace(changes[7], operation=Operation.READ, key=key) for key in "ab"
        ]
        together = change_objects(changes, context)
        assert together == [change_object(change, context) for change in changes]
        assert [one.id for one in together] == [log.idempotency_key(change) for change in changes]
        assert len({one.id for one in together}) == len(changes)
        told = json.loads(msgspec.json.encode(together[1]))
        assert (told["key"], told["body"], told["area"], told["operation"]) == (
            "é0",
            {"n": 0},
            "DATA",
            "UPSERT",
        )
        assert "expires_at" not in told
