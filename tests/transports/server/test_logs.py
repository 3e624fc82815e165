"""F144: what remote subscribers hear when the directory of a served log is renamed, removed, replaced, or restored in place."""

import asyncio
import ctypes
import json
import os
import shutil
import signal

import pytest

from penstock_cdc.errors import LogGone, LogReplaced
from publishers import ChangeLog, ChangeStore, upsert
from tests.harness.constants import without_bounds
from tests.publishers.accidents import EACH_ACCIDENT, SHOWN, Site, rename_away, switch_to_another
from tests.publishers.support import QUICK, fill, scratch, wait_until
from tests.transports.cli.test_program import one_line
from tests.transports.server.test_status import fetch
from tests.transports.server.test_store_logs import Heard
from transports import FollowedName, connect, serve
from transports.cli import main

SOON = {"tail_poll": 0.01, "tail_idle": 0.02}
ALL = [(version, index) for version in range(1, SHOWN + 1) for index in range(2)]
CODES = {LogGone: "LOG_GONE", LogReplaced: "LOG_REPLACED"}
EARLIEST = "subscription { onChange(start: {place: EARLIEST}) { version index cursor } }"


@pytest.fixture
def site():
    home = scratch()
    yield Site(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def served(site):
    with ChangeLog.open(site.path, read_only=True, **without_bounds(SOON)) as log, serve(log) as server:
        yield server


def check_told(told, error, site):
    """What every client hears: the code, both identities, and no path of the server."""
    assert (told["code"], told["retryable"]) == (CODES[error], False)
    assert str(site.home) not in json.dumps(told)
    if error is LogReplaced:
        assert told["old"].keys() == told["new"].keys() == {"logId", "epoch"}


@EACH_ACCIDENT
async def test_each_subscriber_is_told_on_every_transport(site, served, accident, dial, graphql, until):
    """F144: none gets a silent gap or a repetition, and who comes later is told too."""
    async with (
        dial(served.url) as wire,
        graphql(served) as other,
        connect(served.url, reconnect=True) as remote,
    ):
        await wire.init()
        await other.init()
        await wire.subscribe("all", start="earliest", credits=1000)
        found = [(event["version"], event["index"]) for event in await wire.events(len(ALL), "all")]
        await wire.subscribe("idle", start="earliest")
        await other.subscribe(EARLIEST)
        seen = [(int(event["version"]), event["index"]) for event in await other.events(len(ALL))]
        heard = Heard()
        remote.changes(since=1).subscribe(heard)
        await until(lambda: len(heard.changes) == len(ALL))
        accident.happen(site)
        await until(heard.ended.is_set)
        assert found == seen == [change.position for change in heard.changes] == ALL
        assert heard.error.code == CODES[accident.error]
        assert not heard.error.retryable, "so it is not subscribed to again by itself"
        ends = [await wire.expect("error"), await wire.expect("error")]
        assert {end["id"] for end in ends} == {"all", "idle"}
        for end in ends:
            check_told(end["payload"], accident.error, site)
        end = await other.receive()
        assert (end["type"], end["id"]) == ("error", "a")
        told = end["payload"][0]["extensions"]
        assert told.pop("cursor"), "where it was; whatever is there now judges it"
        check_told(told, accident.error, site)
        check_told(await wire.fail("late", start="earliest"), accident.error, site)
        (late,) = await other.fail(EARLIEST, "late")
        check_told(late["extensions"], accident.error, site)
        await other.subscribe("{ history { changes { version } } }", "page")
        page = (await other.receive())["payload"]["errors"]
        check_told(page[0]["extensions"], accident.error, site)
        assert (await other.receive())["type"] == "complete"
        await wire.nothing_comes()
        await other.nothing_comes()
    status, health = await fetch(served, "/health")
    assert (status, health["status"]) == (503, "failed")
    (blue,) = health["logs"].values()
    assert (list(health["logs"]), blue["failure"]) == (["blue"], accident.error.__name__)
    assert blue["status"] == ("gone" if accident.error is LogGone else "replaced")
    assert str(site.home) not in json.dumps(health)
    status, statistics = await fetch(served, "/statistics")
    assert (status, statistics["logs"]) == (200, {"blue": {"failure": accident.error.__name__}})
    assert (await fetch(served, "/schemas", entity_type="order"))[0] == 503


async def test_one_log_of_several_that_is_lost_does_not_take_the_others_along(site, dial):
    """F144: the server is degraded, which is not ok either."""
    with (
        ChangeLog.open(site.path, read_only=True, **without_bounds(SOON)) as shop,
        ChangeLog.open(site.other, read_only=True, **without_bounds(SOON)) as other,
        serve({"shop": shop, "other": other}) as server,
    ):
        rename_away(site)
        await asyncio.to_thread(wait_until, lambda: shop.failure)
        status, health = await fetch(server, "/health")
        assert (status, health["status"]) == (503, "degraded")
        why = "there is no log at shop any more; open the log at its new path"
        assert health["logs"]["shop"] == {"status": "gone", "failure": "LogGone", "why": why}
        assert (await fetch(server, "/ready"))[0] == 200
        assert health["logs"]["other"]["head"]
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(log="other", start="earliest", credits=4)
            assert len(await wire.events(4)) == 4


async def test_a_store_that_is_gone_is_not_taken_for_dropped_logs(tmp_path):
    """F144, E45: a drop is in the system log, and this is not."""
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        store.create("orders").commit([upsert("order", "1", {})])
    with (
        ChangeStore.open(tmp_path / "shop", read_only=True, **without_bounds(SOON)) as store,
        serve(store) as server,
    ):
        orders = store["orders"]
        os.rename(tmp_path / "shop", tmp_path / "away")
        await asyncio.to_thread(wait_until, lambda: orders.failure and store.failure)
        assert (type(orders.failure), type(store.failure)) == (LogGone, LogGone)
        status, health = await fetch(server, "/health")
        assert (status, health["status"]) == (503, "failed")


def exchange(one, other):
    """Two directories, in one step: where nothing is for a moment, a log counts as dropped."""
    at_cwd, swap = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), swap)
    assert done == 0, os.strerror(ctypes.get_errno())


async def test_one_log_of_a_store_that_is_restored_is_told_and_can_be_opened_anew(tmp_path):
    """F144: the store goes on; it is not ok as long as that log has ended."""
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        path = store.create("orders").path
        store.create("users")
        fill(store["orders"], 1)
    shutil.copytree(path, tmp_path / "backup")
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        fill(store["orders"], 2)
    with (
        ChangeStore.open(tmp_path / "shop", read_only=True, **without_bounds(SOON)) as store,
        serve(store) as server,
    ):
        orders = store["orders"]
        exchange(path, tmp_path / "backup")
        await asyncio.to_thread(wait_until, lambda: orders.failure)
        assert isinstance(orders.failure, LogReplaced)
        status, health = await fetch(server, "/health")
        assert (status, health["status"]) == (503, "degraded")
        assert health["logs"]["orders"].keys() == {"status", "failure", "why"}
        assert store.statistics().logs.keys() == {"users"}
        anew = await asyncio.to_thread(store.log, "orders")
        assert (anew is not orders, anew.head.version) == (True, 2)
        server.application._status._healths._until = 0.0  # what was told a moment ago is told again
        assert (await fetch(server, "/health"))[1]["status"] == "ok"


@pytest.mark.parametrize("waits", [False, True])
async def test_who_follows_the_name_serves_what_comes_to_it(site, dial, waits):
    """F144: told first, and then served from what is there, which refuses the places of another log."""
    with FollowedName(site.path, **without_bounds(SOON)) as logs, serve(logs) as server:
        assert list(logs) == ["shop"], "the name of the link, whatever it leads to"
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(log="shop", start="earliest", credits=1000)
            cursor = (await wire.events(len(ALL)))[-1]["cursor"]
            if waits:
                site.path.unlink()
                assert (await wire.expect("error"))["payload"]["code"] == "LOG_GONE"
                assert (await wire.fail("b"))["code"] == "LOG_GONE"
                assert (await fetch(server, "/health"))[1]["status"] == "failed"
                site.path.symlink_to(site.other)
            else:
                switch_to_another(site)
                assert (await wire.expect("error"))["payload"]["code"] == "LOG_REPLACED"
            before = logs["shop"]
            await asyncio.to_thread(wait_until, lambda: logs["shop"].failure is None)
            assert (await wire.fail("c", since=cursor))["code"] == "CURSOR_FOREIGN"
            await wire.subscribe("d", start="earliest", credits=1000)
            assert len(await wire.events(2 * (SHOWN + 4), "d")) == 2 * (SHOWN + 4)
            with ChangeLog.open(site.other, **QUICK) as owner:
                fill(owner, 1)
                assert len(await wire.events(2, "d")) == 2
            assert before.failure is None or before.closed
        assert (await fetch(server, "/health"))[1]["status"] == "ok"


async def test_places_go_on_in_a_copy_that_has_them(site, dial):
    """F144: blue and green are copies of one log."""
    shutil.rmtree(site.backup)
    shutil.copytree(site.blue, site.backup)
    with FollowedName(site.path, **without_bounds(SOON)) as logs, serve(logs) as server:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(start="earliest", credits=1000)
            cursor = (await wire.events(len(ALL)))[-1]["cursor"]
            site.link(site.backup)
            assert (await wire.expect("error"))["payload"]["code"] == "LOG_REPLACED"
            await asyncio.to_thread(wait_until, lambda: logs["shop"].failure is None)
            with ChangeLog.open(site.backup, **QUICK) as owner:
                fill(owner, 1)
            await wire.subscribe("b", since=cursor, credits=10)
            assert [event["version"] for event in await wire.events(2, "b")] == [SHOWN + 1] * 2


def test_the_name_of_a_store_is_followed_too(tmp_path):
    """F144."""
    for name, log in (("blue", "orders"), ("green", "users")):
        with ChangeStore.open(tmp_path / name, **QUICK) as store:
            store.create(log)
    (tmp_path / "shop").symlink_to(tmp_path / "blue")
    with FollowedName(tmp_path / "shop", **without_bounds(SOON)) as logs:
        assert list(logs) == ["orders"]
        (tmp_path / "new").symlink_to(tmp_path / "green")
        os.replace(tmp_path / "new", tmp_path / "shop")
        wait_until(lambda: list(logs) == ["users"])
        assert logs["users"].failure is None
        assert logs["$system"].failure is None
        assert len(logs) == 1


def test_what_comes_to_the_name_and_is_no_log_is_waited_out(site, caplog):
    """F144: said once, however long that takes."""
    with FollowedName(site.path, **without_bounds(SOON)) as logs:
        (site.home / "empty").mkdir()
        site.link(site.home / "empty")
        wait_until(lambda: "waiting for a log at" in caplog.text)
        site.link(site.other)
        wait_until(lambda: logs["shop"].failure is None)
    waiting = [record for record in caplog.records if "waiting for a log" in record.message]
    assert len(waiting) == 1
    assert "the log now at" in caplog.text


def test_an_owner_does_not_follow_the_name(site, capsys):
    """F144."""
    assert main(["serve", str(site.path), "--own", "--follow-name"]) == 2
    assert "--follow-name is True, but must be left out with --own" in one_line(capsys)


def test_a_follower_is_not_writable(site, capsys):
    """F145: whoever asks for it is told what it needs."""
    assert main(["serve", str(site.path), "--writable"]) == 2
    assert "--writable is True, but must be given with --own" in one_line(capsys)


@pytest.mark.parametrize("follows", [False, True])
def test_the_command_says_in_one_line_what_became_of_the_log(start, site, follows):
    """F144: and tail ends with it."""
    options = ["--follow-name"] if follows else []
    with start("serve", site.path, "--port", "0", *options) as server:
        url = server.stdout.readline().split()[4].rstrip(",")
        with (
            start("tail", url, "--since", "earliest") as tail,
            start("tail", site.path, "--since", "earliest") as local,
        ):
            for one in (tail, local):
                for _ in ALL:
                    one.stdout.readline()
            switch_to_another(site)
            _, err = tail.communicate(timeout=60)
            assert (tail.returncode, err.count("\n")) == (1, 1)
            assert err.startswith("penstock: LOG_REPLACED: the log was replaced: ")
            _, err = local.communicate(timeout=60)
            assert (local.returncode, err.count("\n")) == (1, 1)
            assert err.startswith("penstock: the log was replaced: ")
        assert "is no longer followed: the log was replaced: " in server.stderr.readline()
        if follows:
            assert server.stderr.readline().endswith(f" the log now at {site.path} is followed\n")
            with start("tail", url, "--since", "earliest", "--limit", "3") as tail:
                out, _ = tail.communicate(timeout=60)
                assert (tail.returncode, out.count("\n")) == (0, 3)
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
        assert err == ""
