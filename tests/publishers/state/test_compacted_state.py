"""The compacted state of a log: what it holds, as of which place, and what it refuses."""

import logging
import os
import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from penstock_cdc.errors import (
    InvalidChange,
    InvalidOption,
    LogClosed,
    LogFull,
    StateIncomplete,
    StateOff,
    StateUnusable,
)
from penstock_cdc.fields import push, remove_field, set_field
from penstock_cdc.mutations import copied, expire, schema
from publishers import Change, ChangeLog, Content, Operation, Position, rekey, remove, truncate, upsert
from publishers.wal import RealFileSystem
from tests.harness.constants import set_constant, without_bounds
from tests.harness.inside import catalog_of, files_of, thread_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, fill, order, wait_until

STATED = {"state": True, "state_interval": 0.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "penstock")


def stated(path, **options):
    return ChangeLog.open(path, **without_bounds({**QUICK, **STATED, **options}))


def settled(log):
    """The state has everything that is visible."""
    log.state.wait(log.visible, timeout=60)
    return log.state


def bodies(state, entity_type=None):
    return {(row.entity_type, row.key): row.body for row in state.page(entity_type).rows}


def test_the_newest_body_of_each_entity_is_kept(path):
    """F146: every operation of the event model does to the rows what it says."""
    with stated(path) as log:
        log.commit(
            [upsert("order", "1", {"n": 1}), upsert("order", "2", {"n": 2}), upsert("visit", "1", {"n": 3})]
        )
        log.commit(
            [upsert("order", "1", {"n": 4}), remove("order", "2"), schema("order", {"type": "struct"})]
        )
        assert bodies(settled(log)) == {("order", "1"): {"n": 4}, ("visit", "1"): {"n": 3}}
        log.commit([rekey("order", "1", "9", {"n": 5}), expire("visit", "1")])
        assert bodies(settled(log)) == {("order", "9"): {"n": 5}}
        log.commit(
            [upsert("visit", "7", {}), upsert("order", "8", {}), truncate("order"), upsert("order", "6", {})]
        )
        assert bodies(settled(log)) == {("order", "6"): {}, ("visit", "7"): {}}
        assert log.statistics().state.rows == 2


def test_field_level_changes_are_in_the_body_of_their_entity(path):
    """F146: a removal of a field is not the end of the entity, and a sparse image is not the entity."""
    with stated(path) as log:
        parts = [set_field("a", 2), remove_field("b"), push("c", 1)]
        log.commit(
            [upsert("order", "1", {"a": 2, "c": [1]}, before={"a": 1, "b": 1, "c": []}, changes=parts)]
        )
        assert bodies(settled(log)) == {("order", "1"): {"a": 2, "c": [1]}}


def test_a_row_tells_what_its_newest_change_told(path):
    """F146."""
    with stated(path, origin="rome") as log:
        log.commit([order(2), upsert("order", "1", {"n": 1}, meta={"by": "ann"}, entry_version=7)])
        row = settled(log).get("order", "1")
        (change,) = log.history(since=Position(1, 2), content=Content.BODY).changes
        assert (row.version, row.index, row.timestamp) == (1, 2, change.timestamp)
        assert (row.entry_version, row.origin, row.body_bytes) == (7, "rome", change.body_bytes)
        assert row.meta_bytes == change.meta_bytes
        assert log.state.get("order", "3") is None


def test_rows_that_were_read_elsewhere_and_copied_are_rows(path):
    """F93, F146: a replica may store rows of a snapshot."""
    with stated(path) as log:
        log.commit([order(1)])
        (change,) = log.history(since=Position(1, 1), content=Content.BODY).changes
        fields = {name: getattr(change, name) for name in Change.__struct_fields__}
        log.commit([copied(Change(**{**fields, "operation": Operation.READ, "key": "2"}))])
        assert set(bodies(settled(log))) == {("order", "1"), ("order", "2")}


def test_pages_follow_each_other_in_the_order_of_types_and_keys(path):
    """F146: by rows, by keys, by bytes."""
    keys = [f"{n:02}" for n in range(25)]
    with stated(path) as log:
        log.commit([order(key, kind) for kind in ("b", "a") for key in reversed(keys)])
        state, found, after = settled(log), [], None
        while True:
            page = state.page(after=after, limit=7)
            assert page.place == Position(2)
            found += [(row.entity_type, row.key) for row in page.rows]
            if not page.more:
                break
            after = page.rows[-1]
        assert found == [(kind, key) for kind in ("a", "b") for key in keys]
        assert [row.key for row in state.page("b", after="21").rows] == keys[22:]
        assert [row.key for row in state.page("b", after=b"21").rows] == keys[22:]
        assert [row.key for row in state.page("b", max_bytes=1).rows] == ["00"]
        with pytest.raises(InvalidOption, match="limit"):
            state.page(limit=0)
        with pytest.raises(InvalidChange, match="entity_type"):
            state.page(after="1")


def test_keys_of_any_bytes_are_found_and_paged_over(path):
    """F146."""
    keys = [b"\xff\x00", b"\x00", "ü".encode(), b"a"]
    with stated(path) as log:
        log.commit([upsert("order", key, {}) for key in keys])
        state = settled(log)
        assert all(state.get("order", key) is not None for key in keys)
        rows, after = [], None
        while (page := state.page(after=after, limit=1)).rows:
            rows += page.rows
            after = rows[-1]
        assert [row.key.encode("utf-8", "surrogateescape") for row in rows] == sorted(keys)


def test_what_is_withheld_is_not_in_it(path):
    """F28, F146."""
    with stated(path) as log:
        log.commit([order(1)])
        log.commit([order(2)], visible=False)
        assert set(bodies(settled(log))) == {("order", "1")}
        with pytest.raises(TimeoutError, match="not at version 2"):
            log.state.wait(2, timeout=0.01)
        log.publish(2)
        assert set(bodies(settled(log))) == {("order", "1"), ("order", "2")}


def test_a_large_transaction_counts_as_a_whole(path):
    """F146: it is given to SQLite in parts, and no reader sees one of them."""
    with stated(path, frame_bytes=1024) as log, closing(sqlite3.connect(":memory:")):
        fill(log, 1, 3, kind="other")
        settled(log)
        body = b'{"text":"%s"}' % (b"x" * 1000)  # 3 MiB in all, of which each is given by itself
        seen = set()

        def watch():
            while log.state.position < Position(3):
                seen.add(len(log.state.page("order", limit=100_000, max_bytes=2**40).rows))

        watcher = threading.Thread(target=watch)
        watcher.start()
        log.commit([upsert("order", f"{n}", body) for n in range(3_000)])
        settled(log)
        watcher.join()
        assert seen <= {0, 3_000}
        assert log.statistics().state.rows == 3_003


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_it_goes_on_where_it_was(path, sync):
    """F146: what is stored is not read again, and HEAD covers the place."""
    with stated(path, sync=sync) as log:
        fill(log, 3, 2)
        log.state.wait(3, timeout=60)
    with stated(path, sync=sync) as log:
        told = log.statistics().state
        assert (told.position, told.rows, told.rebuilds, told.batches) == (Position(4), 2, 0, 0)
        assert [hold.position for hold in log.statistics().holds] == [Position(4)]
        fill(log, 1, 3)
        log.state.wait(4, timeout=60)
        assert len(bodies(log.state)) == 3
        assert log.statistics().state.behind.versions == 0


def test_without_it_the_log_says_how_to_have_it(path):
    with ChangeLog.open(path, **QUICK) as log, pytest.raises(StateOff, match="state=True"):
        _ = log.state
    with ChangeLog.open(path, read_only=True) as log, pytest.raises(StateOff):
        _ = log.state
    assert not (path / "state").exists()


def test_it_is_made_of_the_whole_log_if_there_is_no_file(path):
    """F146."""
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 5, 3)
    with stated(path) as log:
        assert len(bodies(settled(log))) == 3
        assert log.statistics().state.rebuilds == 1


def pruned(path, **options):
    """A log that begins later than version 1."""
    with ChangeLog.open(path, **QUICK, **RETAIN, **options) as log:
        while log.oldest == Position(1):
            fill(log, 10, 20)


def test_a_log_that_begins_later_gives_no_part_of_a_state(path):
    """F92, F146."""
    pruned(path)
    with pytest.raises(StateIncomplete) as caught:
        stated(path)
    with ChangeLog.open(path, **QUICK) as log:  # which is free, and good
        assert caught.value.since == log.oldest


def test_a_state_that_the_log_has_left_behind_gives_no_part_of_it(path):
    """F92, F146: it was opened without its state for so long that changes in between are gone."""
    with stated(path) as log:
        fill(log, 1)
        settled(log)
    pruned(path)
    with pytest.raises(StateIncomplete):
        stated(path)


def test_what_it_has_not_read_is_kept_from_retention(path):
    """F126, F146: also over a restart; and before anything is deleted, its file is synced."""
    with stated(path, **RETAIN) as log:
        fill(log, 1)
        settled(log)
    with stated(path, **RETAIN, state_interval=3600.0) as log:
        settled(log)
        last = catalog_of(files_of(log).reader).entries[-1].number
        while catalog_of(files_of(log).reader).entries[-1].number < last + 5:
            fill(log, 10, 20)
        (hold,) = log.statistics().holds
        assert hold.position <= Position(log.visible)
        assert log.oldest <= hold.position
        settled(log)
        wait_until(lambda: log.oldest > Position(1))
        assert len(bodies(log.state)) == 20


def test_it_goes_on_behind_a_segment_that_it_has_read_whole_and_that_is_gone(path):
    """F126, F146: the hold is on what comes next, in the segment behind."""
    with stated(path, **RETAIN, state_interval=3600.0) as log:
        catalog = catalog_of(files_of(log).reader)
        while len(catalog.entries) == 1:
            read = settled(log).position
            fill(log, 1, 20)
        while log.oldest == Position(1):
            fill(log, 10, 20)
        assert (log.oldest, log.state.position) == (read, read)
        assert settled(log).position == log.head


@pytest.mark.usefixtures("quiet")
def test_a_state_above_its_cap_is_lost_and_says_so(path):
    """F92, F146."""
    with stated(path, **RETAIN, slot_keep_bytes=0, state_interval=3600.0) as log:
        fill(log, 1)
        settled(log)
        state = log.state
        while log.oldest == Position(1):
            fill(log, 10, 20)
        with pytest.raises(StateIncomplete):
            state.wait(log.visible, timeout=60)
        with pytest.raises(StateIncomplete):
            state.get("order", "1")
        assert "begins at" in log.statistics().state.failure


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("damage", ["header", "pages", "nothing", "row", "other log", "place"])
def test_a_file_that_is_not_good_is_made_anew(path, tmp_path, damage):
    """F146: whatever is wrong with it, it is not believed."""
    with stated(path) as log:
        fill(log, 2, 500)
        settled(log)
    file = path / "state" / "rows.sqlite"
    if damage == "header":
        file.write_bytes(b"\xff" * 100 + file.read_bytes()[100:])
    elif damage == "pages":
        file.write_bytes(file.read_bytes()[:4096] + os.urandom(file.stat().st_size - 4096))
    elif damage == "nothing":
        file.write_bytes(b"")
    elif damage == "row":
        change(file, "UPDATE rows SET body = '{}' WHERE key = ?", (b"7",))
    elif damage == "place":
        change(file, "UPDATE place SET token = replace(token, ':3:0', ':9:0'), version = 8")
    else:
        with stated(tmp_path / "other") as other:
            fill(other, 7)
            settled(other)
        shutil.copy(tmp_path / "other" / "state" / "rows.sqlite", file)
    with stated(path) as log:
        if damage == "row":
            with pytest.raises(StateUnusable, match="damaged"):
                log.state.get("order", "7")
        wait_until(lambda: log.state.rebuilds == 1)
        assert settled(log).get("order", "7").body == {"n": "7"}
        assert log.statistics().state.rows == 500


@pytest.mark.usefixtures("quiet")
def test_readers_do_not_see_that_the_file_is_made_anew(path):
    """F146: what they ask meanwhile is answered from the one file or the other, or refused as damaged."""
    with stated(path) as log:
        fill(log, 1, 200)
        state, told = settled(log), []

        def read():
            while state.rebuilds < 30:
                try:
                    assert state.get("order", "7").body == {"n": "7"}
                except StateUnusable as error:
                    if "made" not in error.why:
                        told.append(error)
                except Exception as error:
                    told.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        while state.rebuilds < 30:
            before, state._spoilt = state.rebuilds, True
            state.wake()
            wait_until(lambda now=before: state.rebuilds > now)
        for reader in readers:
            reader.join()
        assert told == []


def change(file, statement, values=()):
    with closing(sqlite3.connect(file)) as database:
        database.execute(statement, values)
        database.commit()


@pytest.mark.usefixtures("quiet")
def test_damage_of_a_state_that_cannot_be_made_anew_is_told(path):
    """F92, F146."""
    with stated(path, **RETAIN) as log:
        while log.oldest == Position(1):
            fill(log, 10, 20)
        settled(log)
    change(path / "state" / "rows.sqlite", "UPDATE rows SET body = '{}'")
    with stated(path, **RETAIN) as log:
        state = log.state
        with pytest.raises(StateUnusable):
            state.get("order", "1")
        wait_until(lambda: state.failure is not None)
        with pytest.raises(StateIncomplete):
            state.get("order", "1")


@pytest.mark.parametrize("what", ["another application", "format"])
def test_a_foreign_file_is_refused_and_left_as_it_is(path, what):
    with stated(path) as log:
        settled(log)
    file = path / "state" / "rows.sqlite"
    pragma = "application_id = 7" if what == "another application" else "user_version = 99"
    change(file, f"PRAGMA {pragma}")
    before = file.read_bytes()
    with pytest.raises(StateUnusable, match=what):
        stated(path)
    assert file.read_bytes() == before


def test_a_state_ends_whenever_it_is_told_to(path, monkeypatch):
    """Also in the moment before it forgets that it was called."""
    with stated(path) as log:
        settled(log)
        state = log._state
        plain = state._called.clear

        def late():
            monkeypatch.setattr(state._called, "clear", plain)
            state._end()
            plain()

        monkeypatch.setattr(state._called, "clear", late)
        state.wake()
        thread_of(state).join(10)
        assert not thread_of(state).is_alive()


@pytest.mark.parametrize("what", ["/dev/null", "/dev/zero", "/dev/full", "a FIFO"])
@pytest.mark.parametrize("place", ["state", "state/rows.sqlite"])
def test_a_device_in_place_of_the_state_does_not_stop_the_log(path, caplog, place, what):
    """It is left alone, and the state made anew beside it."""
    with ChangeLog.open(path, **QUICK) as log:
        log.commit([upsert("order", "1", {"n": 1})])
    (path / place).parent.mkdir(exist_ok=True)
    if what == "a FIFO":
        os.mkfifo(path / place)
    else:
        (path / place).symlink_to(what)
    with stated(path) as log:
        assert "was a device, and is made anew" in caplog.text
        settled(log)
        assert log.state.get("order", "1").body == {"n": 1}
    assert (path / "state" / "rows.sqlite").is_file()


def test_a_directory_that_cannot_be_made_is_refused(path):
    with ChangeLog.open(path, **QUICK):
        pass
    (path / "state").write_text("no directory")
    with pytest.raises(StateUnusable):
        stated(path)
    (path / "state").unlink()
    (path / "state" / "rows.sqlite").mkdir(parents=True)
    with pytest.raises(StateUnusable):
        stated(path)


def test_a_filesystem_that_sqlite_does_not_know_is_refused(path):
    class Other:
        def __init__(self):
            self._real = RealFileSystem()

        def __getattr__(self, name):
            return getattr(self._real, name)

    with pytest.raises(InvalidOption, match="filesystem"):
        stated(path, filesystem=Other())


def test_what_the_disk_refuses_is_tried_again(path, monkeypatch, quiet):
    """F146: nothing is lost, and the failures are counted."""
    set_constant(monkeypatch, "publishers.state.compacted_state._RETRY", 0.001)
    with stated(path) as log:
        settled(log)
        log.state._log.vouch, vouch = refusing, log.state._log.vouch
        fill(log, 2)
        wait_until(lambda: log.statistics().state.failures >= 3)
        log.state._log.vouch = vouch
        assert settled(log).position == Position(3)


def refusing(version):
    raise LogFull(0, 1)


def test_one_who_waits_is_told_of_the_end(path):
    with stated(path) as log:
        state = log.state
        settled(log)
        errors = []

        def wait():
            try:
                state.wait(9)
            except LogClosed as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: state._waiters)
    waiting.join(60)
    assert len(errors) == 1
    with pytest.raises(LogClosed):
        state.get("order", "1")
    with pytest.raises(LogClosed):
        _ = log.state


def test_it_follows_although_nobody_waits_for_it(path):
    """F146."""
    with stated(path) as log:
        for version in range(1, 30):
            fill(log, 1)
            wait_until(lambda now=version: log.state.position == Position(now + 1))


def test_it_costs_a_burst_of_commits_one_wake(path):
    """F146: while its interval lasts, the writer does not know of it."""
    with stated(path, state_interval=3600.0) as log:
        fill(log, 1)
        settled(log)
        wakes = []
        log.state.wake, wake = lambda: (wakes.append(1), wake()), log.state.wake
        fill(log, 100)
        assert len(wakes) <= 1
        assert settled(log).position == log.head
