"""What is acknowledged to a client survives a crash, whatever the sync policy of the log."""

import pytest

from publishers import ChangeLog, upsert
from transports import ANONYMOUS, Access
from transports.appends import Appending
from transports.codec.appends import AppendRequest
from transports.limits import Limits


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
@pytest.mark.parametrize("wait", ["durable", "visible"])
def test_an_append_is_synced_before_it_is_acknowledged_as_durable(tmp_path, sync, wait):
    """F145: under ``os`` the log itself syncs nothing, and calls what it has written durable."""
    with ChangeLog.open(tmp_path / "log", sync=sync, sync_interval=60.0) as log:
        appending = Appending({"log": log}, Access(), Limits())
        request = AppendRequest.of({"wait": wait})
        before = log.statistics().syncs
        appending.submit(log, ANONYMOUS, request, [upsert("order", "1", {})]).future(request.wait).result(30)
        assert log.statistics().syncs > before
