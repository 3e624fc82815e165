"""Lines of ``tail``, read as ``append`` reads them: each operation keeps its entry version in the next log."""

from operator import attrgetter

from penstock_cdc.fields import push
from penstock_cdc.mutations import expire
from publishers import ChangeLog, Content, remove, truncate, upsert
from tests.transports.sinks.targets import QUICK
from transports.codec.changes import read_lines
from transports.codec.events import encode_change


def test_each_operation_keeps_its_entry_version_over_two_logs(tmp_path):
    """F17: also that which has no key."""
    told = attrgetter("operation", "entity_type", "key", "field", "entry_version", "body_bytes")
    with ChangeLog.open(tmp_path / "a", **QUICK) as log:
        log.commit([upsert("order", str(key), {"n": [key]}) for key in range(3)])
        log.commit([remove("order", "0"), expire("order", "1")])
        log.commit([truncate("order")])
        log.commit([upsert("order", "2", {"n": [2, 3]}, changes=[push("n", 3)])])
        log.commit([truncate("bill", entry_version=77), upsert("order", "4", {}, entry_version=88)])
        first = [one for one in log.history(None, "earliest", content=Content.BODY).changes if one.index]
    for name in ("b", "c"):
        lines = [encode_change(one, "") for one in first]
        with ChangeLog.open(tmp_path / name, **QUICK) as log:
            log.commit([upsert("other", "x", {})])
            log.commit(list(read_lines(lines)))
            again = [one for one in log.history(None, 2, content=Content.BODY).changes if one.index]
        assert list(map(told, again)) == list(map(told, first))
        first = again
