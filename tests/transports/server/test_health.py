"""/health and /ready: what a load balancer and an operator are told."""

import errno
import json
import logging
import os
import shutil
from collections import Counter

import pytest

from publishers import ChangeLog, upsert
from publishers.errors import LogFull
from publishers.wal.disk.filesystem import RealFile
from tests.harness.constants import set_constant, without_bounds
from tests.harness.failing import failing
from tests.harness.inside import house_step_of, loop_of, pools_of, service_of
from tests.publishers.support import QUICK, scratch
from tests.transports.principals import knowing
from tests.transports.server.test_status import fetch
from tests.transports.telemetry.test_prometheus import fetch as fetch_text
from tests.transports.telemetry.test_prometheus import read
from transports import Grant, Limits, LogAction, Principal, serve
from transports.cli.program import main

SOON = {"tail_poll": 0.01, "tail_idle": 0.02}


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch):
    set_constant(monkeypatch, "transports.server.status._AGE", 0.0)


@pytest.fixture
def owned():
    home = scratch()
    with ChangeLog.open(home / "shop", **QUICK, segment_bytes=65_536) as log:
        for number in range(5):
            log.commit([upsert("order", str(number), {"marked": f"here-{number}", "rest": "x" * 40_000})])
        yield log
    shutil.rmtree(home)


@pytest.fixture
def followed(owned):
    with ChangeLog.open(owned.path, read_only=True, **without_bounds(SOON)) as log:
        yield log


def flip(log, text):
    """Flips one bit of a change in its segment."""
    for path in log.path.glob("wal-*.log"):
        with path.open("r+b") as file:
            at = file.read().find(text.encode())
            if at >= 0:
                file.seek(at)
                file.write(bytes([text.encode()[0] ^ 1]))
                return
    raise AssertionError


async def statuses(server):
    return [((found := await fetch(server, path))[0], found[1]["status"]) for path in ("/health", "/ready")]


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("place", ["here-0", "here-4"])
async def test_a_corrupt_log_behind_a_load_balancer_is_out_of_service(
    owned, followed, tmp_path, dial, caplog, place, other
):
    """F144: a byte flips while the log is served; a reader meets it, or the look at the newest record does."""
    with ChangeLog.open(tmp_path / "other", **QUICK) as spare:
        logs = {"shop": followed, "other": spare} if other else {"shop": followed}
        with serve(logs) as server:
            if place == "here-0":
                assert await statuses(server) == [(200, "ok"), (200, "ok")]
            flip(owned, place)
            async with dial(server.url) as wire:
                await wire.init()
                for name in ("a", "b"):
                    if place == "here-0":
                        await wire.send(
                            type="subscribe",
                            id=name,
                            payload={"log": "shop", "criteria": [], "start": "earliest", "credits": 9},
                        )
                        await wire.expect("subscribed")
                        error = (await wire.expect("error"))["payload"]
                        assert (error["code"], error["retryable"]) == ("INTERNAL", False)
                        assert "damaged" in error["message"]
            expected = [(503, "degraded"), (200, "degraded")] if other else [(503, "failed"), (503, "failed")]
            for _ in range(2):
                assert await statuses(server) == expected
            shop = (await fetch(server, "/health"))[1]["logs"]["shop"]
    assert (shop["status"], shop["failure"], "head" in shop) == ("corrupt", "WalCorrupted", True)
    assert "'penstock verify DIR' shows" in shop["why"]
    assert "'penstock repair DIR' repairs" in shop["why"]
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.getMessage() == f"the log shop is corrupt: {shop['why']}"
    assert line.exc_info is None


async def test_whether_the_writer_lives_and_when_it_committed_last_is_told(owned, followed):
    """F144: of a log that another opening writes; the lock tells, and LOCK which process has it."""
    with serve(followed) as server:
        told = (await fetch(server, "/health"))[1]["logs"]["shop"]
        assert told["writer"] == {"alive": True, "pid": os.getpid()}
        assert 0 <= told["commitAge"] < 60
        owned.close()
        assert (await fetch(server, "/health"))[1]["logs"]["shop"]["writer"] == {"alive": False, "pid": None}
        assert await statuses(server) == [(200, "ok"), (200, "ok")], "a log that nobody writes is sound"


@pytest.mark.parametrize("late", [None, False, True])
@pytest.mark.parametrize("who", ["owner", "follower", "orphan"])
async def test_a_dead_writer_is_a_metric_and_a_late_commit_makes_unhealthy_on_request(
    owned, followed, who, late
):
    """F144: a log may pause, and a follower serves it without its writer; so /health tells of both, and fails on request."""
    if who == "orphan":
        owned.close()
    limits = None if late is None else Limits(commit_age=1e-6 if late else 3_600.0)
    with serve(owned if who == "owner" else followed, limits=limits) as server:
        expected = [(503, "degraded"), (200, "degraded")] if late else [(200, "ok"), (200, "ok")]
        assert await statuses(server) == expected
        shop = (await fetch(server, "/health"))[1]["logs"]["shop"]
        found = read((await fetch_text(server, "/metrics"))[2])
    assert (shop["status"], shop.get("late", False)) == ("ok", bool(late))
    assert shop["writer"]["alive"] is (who != "orphan")
    label = (("log", "shop"),)
    assert found["penstock_log_writer_alive", label] == (who != "orphan")
    limit = None if limits is None else limits.commit_age
    assert found.get(("penstock_log_commit_age_limit_seconds", label)) == limit


async def test_a_server_that_is_about_to_stop_is_healthy_and_not_ready(serving, until):
    server = serving()
    loop_of(server).call_soon_threadsafe(server.application.goaway, 60.0)
    await until(lambda: server.application._stopping)
    assert await statuses(server) == [(200, "ok"), (503, "draining")]
    loop_of(server).call_soon_threadsafe(server.application.stop)
    await until(lambda: pools_of(server.application).gathering._closed)
    assert await statuses(server) == [(503, "stopping"), (503, "draining")]


async def test_a_log_that_was_closed_is_not_served(serving, log):
    server = serving()
    log.close()
    assert await statuses(server) == [(503, "failed"), (503, "failed")]
    assert (await fetch(server, "/health"))[1]["logs"]["shop"]["status"] == "closed"


async def test_a_caller_without_a_token_hears_the_status_and_nothing_else(owned, followed):
    """F59."""
    with serve(followed, authenticate=knowing("right")) as server:
        for path in ("/health", "/ready"):
            assert await fetch(server, path) == (200, {"status": "ok"})
            assert await fetch(server, path, "wrong") == (200, {"status": "ok"})
            assert "shop" in (await fetch(server, path, "right"))[1]["logs"]
    flip(owned, "here-4")
    with (
        ChangeLog.open(owned.path, read_only=True) as again,
        serve(again, authenticate=knowing("right")) as server,
    ):
        for path in ("/health", "/ready"):
            assert await fetch(server, path) == (503, {"status": "failed"})


async def test_what_is_wrong_is_told_without_the_directories_of_the_server(owned, followed, monkeypatch):
    error = OSError(5, "Input/output error", str(owned.path / "wal-000000000001.log"))
    failing(monkeypatch, service_of(followed).frames, "read", error)
    with serve(followed) as server:
        status, told = await fetch(server, "/health")
    assert (status, told["logs"]["shop"]["status"]) == (503, "unreadable")
    assert told["logs"]["shop"]["why"] == "[Errno 5] Input/output error: 'wal-000000000001.log'"
    assert str(owned.path) not in json.dumps(told)


@pytest.mark.parametrize("path", ["/health", "/ready", "/statistics", "/schemas"])
async def test_a_request_is_judged_once_and_the_authoriser_asked_once_for_each_log(
    owned, followed, path, monkeypatch
):
    """F59: both are the code of the application, and run on the event loop."""
    asked = Counter()
    set_constant(monkeypatch, "transports.server.status._AGE", 60.0)

    def judge(credentials):
        asked["judge"] += 1
        return Principal(credentials.token)

    def authorise(principal, log, action):
        asked[log, principal.name, action.name] += 1
        return Grant({LogAction.READ, LogAction.OPERATE})

    with serve(
        {"a": owned, "b": followed}, limits=Limits(), authenticate=judge, authorise=authorise
    ) as server:
        for _ in range(3):
            await fetch(server, path, "ann", **({"log": "a"} if path == "/schemas" else {}))
        assert asked.pop("judge") == 3
        if path == "/schemas":
            assert asked == {("a", "ann", "READ"): 3}
        else:
            action = "OPERATE" if path == "/statistics" else "READ"
            assert asked == {
                ("a", "ann", action): 1,
                ("b", "ann", action): 1,
                ("$system", "ann", "OPERATE"): 1,
            }


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, "full"), (errno.EMFILE, "exhausted")])
async def test_a_full_disk_is_told_until_there_is_room(owned, monkeypatch, caplog, capsys, number, status):
    """By /health, /ready, `penstock top` and one line; readers go on meanwhile."""
    with serve(owned) as server:
        assert await statuses(server) == [(200, "ok"), (200, "ok")]
        with monkeypatch.context() as patched:
            failing(patched, RealFile, "pwrite", OSError(number, "simulated"))
            for _ in range(3):
                with pytest.raises(LogFull):
                    owned.commit([upsert("order", "1", {})])
            house_step_of(owned)()
            assert await statuses(server) == [(503, "failed"), (503, "failed")]
            _, answer = await fetch(server, "/health")
            assert answer["logs"]["shop"]["status"] == status
            assert str(owned.path.parent) not in answer["logs"]["shop"]["why"]
            assert owned.history(limit=3).changes
            assert main(["top", server.home_url, "--once", "--interval", "0.1"]) == 0
            assert status in capsys.readouterr().out
        house_step_of(owned)()
        assert await statuses(server) == [(200, "ok"), (200, "ok")]
        owned.commit([upsert("order", "1", {})])
    lines = [line.getMessage() for line in caplog.records if "room" in line.getMessage()]
    assert [line[:26] for line in lines] == ["the log has no room, and r", "the log has room again"]
