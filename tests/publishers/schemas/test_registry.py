"""Schemas are told before they are used, and every change names its own."""

import contextlib
import logging
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import InvalidChange, PenstockError
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import schema
from publishers import Area, ChangeLog, Content, Criterion, Operation, Position, upsert
from publishers.mutations.mutation import columns_of
from publishers.schemas import registry
from publishers.schemas.registry import SCHEMAS_NAME
from tests.flow.probes import Probe
from tests.harness.failing import failing
from tests.harness.inside import schemas_of
from tests.harness.scale import each
from tests.publishers.support import QUICK, in_threads, opened
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

TOTAL = {"type": "struct", "fields": [{"name": "total", "type": "decimal(10,2)"}]}
NOTE = {"type": "struct", "fields": [{"name": "note", "type": "string"}]}


def past(log, *wishes):
    return log.history(wishes or None, content=Content.BODY, limit=100_000).changes


def versions(log):
    """Of each change of data the version of its schema."""
    return [change.schema_version for change in past(log, Criterion(areas={Area.DATA}))]


def test_a_schema_is_a_change_that_comes_before_the_first_one_that_uses_it(log):
    """F9, F10: told in the same transaction, ahead."""
    with log.transaction() as tx:
        tx.schema("order", TOTAL, changed=["total"], meta={"by": "ann"}, origin="here")
        tx.upsert("order", "1", {"total": "1.00"})
    _, told, used = past(log)
    assert (told.area, told.operation) == (Area.SCHEMA, Operation.UPSERT)
    assert (told.entity_type, told.key, told.body) == ("order", "entity", TOTAL)
    assert (told.changed, told.meta, told.origin) == (("total",), {"by": "ann"}, "here")
    assert told.schema_version == used.schema_version == 1
    assert told.position < used.position


def test_changes_carry_the_version_in_force_at_their_commit(log):
    """F11: those that name one of their own, and those of types without a schema, are left alone."""
    log.commit([upsert("order", "0", {})])
    log.commit([schema("order", TOTAL)])
    log.commit([upsert("order", "1", {}), upsert("item", "1", {}), upsert("order", "2", {}, origin="x")])
    log.commit([upsert("order", "3", {}, changes=[set_field("a", 1)], meta={"m": 1})])
    log.commit([schema("order", NOTE, 7)])
    log.commit([upsert("order", "4", {}, schema_version=1), upsert("order", "5", {})])
    log.commit([upsert("item", "2", {}, schema_version=99)])
    assert versions(log) == [None, 1, None, 1, 1, 1, 1, 7, 99]
    kept = past(log, Criterion(areas={Area.DATA}))
    assert (kept[3].origin, kept[4].meta, kept[5].field) == ("x", {"m": 1}, "a")


def test_a_version_that_was_not_told_is_refused(log):
    """F9, F10: nothing is committed."""
    log.commit([schema("order", TOTAL)])
    with pytest.raises(InvalidChange, match="told before: the newest schema of 'order' is 1") as refused:
        log.commit([upsert("order", "1", {}), upsert("order", "1", {}, schema_version=2)])
    assert refused.value.parameter == "schema_version"
    with pytest.raises(InvalidChange):
        log.commit([upsert("order", "1", {}, schema_version=2), schema("order", NOTE)])
    with pytest.raises(InvalidChange) as falling:
        log.commit([schema("order", NOTE, 1)])
    assert falling.value.parameter == "version"
    with pytest.raises(InvalidChange):
        schema("order", NOTE, 0)
    assert log.head == Position(2)
    log.commit([schema("order", NOTE), upsert("order", "1", {}, schema_version=2)])
    assert versions(log) == [2]


def test_schemas_are_known_again_after_an_opening_without_reading_the_log(tmp_path):
    """F11: restart-safe, and no scan."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        log.commit([schema("order", TOTAL)])
        log.commit([schema("order", NOTE)])
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        schemas_of(log)._replay = None  # nobody asks it
        log.commit([upsert("order", "1", {})])
        assert log.schema("order").version == 2
        assert log.schema("order").parts == {
            "entity": b'{"type":"struct","fields":[{"name":"note","type":"string"}]}'
        }
        assert versions(log) == [2]
        log.commit([schema("order", TOTAL)])
        assert log.schema("order").version == 3


@pytest.mark.parametrize("damage", ["before the commit", "after the commit", "torn"])
def test_a_crash_around_a_commit_that_tells_a_schema_loses_no_version(tmp_path, damage):
    """F9, F11: the file is derived from the log."""
    path = tmp_path / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.commit([schema("order", TOTAL)])
        before = (path / SCHEMAS_NAME).read_bytes()
        schemas_of(log).mark()
        marked = (path / SCHEMAS_NAME).read_bytes()
        schemas_of(log).write(None)
        if damage != "before the commit":
            log.commit([upsert("order", "1", {}), schema("order", NOTE)])
            log.commit([upsert("order", "1", {})])
    (path / SCHEMAS_NAME).write_bytes(before[:20] if damage == "torn" else marked)
    with ChangeLog.open(path, **QUICK) as log:
        newest = 1 if damage == "before the commit" else 2
        assert log.schema("order").version == newest
        assert log.schema("order", 1).body == TOTAL
        log.commit([schema("order", NOTE)])
        assert log.schema("order").version == newest + 1


def test_a_late_subscriber_finds_every_version_that_it_can_meet(tmp_path):
    """F10: by look-up, from the owner and from one who follows, also when the change that told it is gone."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        assert log.schema("order") is None
        log.commit([schema("order", TOTAL)])
        with ChangeLog.open(tmp_path / "log", read_only=True) as follower:
            assert follower.schema("order").version == 1
            log.commit([schema("order", NOTE, part="attributes")])
            assert follower.schema("order", 2).parts.keys() == {"entity", "attributes"}
            assert follower.schema("order", 1).body == TOTAL
            assert follower.schema("order", 3) is None
        assert log.schema("order").position == Position(2, 1)


def test_whoever_has_a_change_has_its_schema(log):
    """F10: also a subscriber that is served while the commit that tells the schema is still at it."""
    found, newest = [], []

    def ask(change):
        if change.schema_version is not None:
            found.append((change.schema_version, log.schema("order", change.schema_version)))
            newest.append(log.schema("order").version)

    log.changes().subscribe(Probe(first=1000, on_item=ask), executor=flow.INLINE)
    for body in (TOTAL, NOTE, TOTAL):
        log.commit([schema("order", body), upsert("order", "1", {})])
    assert [version for version, _ in found] == newest == [1, 1, 2, 2, 3, 3]
    assert [(told.version, told.body) for _, told in found[::2]] == [(1, TOTAL), (2, NOTE), (3, TOTAL)]
    assert [told.position for _, told in found[::2]] == [Position(version, 1) for version in (1, 2, 3)]
    assert log.schemas() == {"order": (1, 2, 3)}


def test_a_follower_answers_many_who_ask_at_once(tmp_path):
    """F10: each of them reads the file anew, and none sees it half read."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        for version in range(1, 60):
            log.commit([schema("order", {"n": version}, version)])
        with ChangeLog.open(tmp_path / "log", read_only=True) as follower:

            def ask(version):
                for _ in range(40):
                    assert follower.schema("order", version).body == {"n": version}

            in_threads(*(partial(ask, version) for version in range(50, 58)))


def test_parts_of_a_schema_are_told_apart_and_can_share_a_version(log):
    """F9, D11: one kind at a time can be asked for."""
    log.commit(
        [schema("order", {"n": 1}, 5, part="attributes"), schema("order", {"n": 2}, 5, part="references")]
    )
    log.commit([schema("order", {"n": 3}, part="attributes")])
    asked = past(log, Criterion(areas={Area.SCHEMA}, keys={"attributes"}))
    assert [(change.schema_version, change.body) for change in asked] == [(5, {"n": 1}), (6, {"n": 3})]
    assert log.schema("order").parts == {"attributes": b'{"n":3}', "references": b'{"n":2}'}
    assert log.schema("order", 5).parts == {"attributes": b'{"n":1}', "references": b'{"n":2}'}
    with pytest.raises(InvalidChange):
        log.commit([schema("order", {}, 7, part="a"), schema("order", {}, 7, part="a")])


def test_columns_are_stamped_too(log):
    """F11: what comes as columns, of one type and of several, with and without metadata."""
    log.commit([schema("a", {}), schema("b", {}), schema("b", {})])
    one = columns_of([upsert("a", str(n), {}) for n in range(3)])
    two = columns_of([upsert(kind, "1", {}) for kind in "abc"])
    three = columns_of([upsert("b", "1", {}, origin="x"), upsert("b", "2", {})])
    log.commit_columns([one, two, three])
    assert versions(log) == [1, 1, 1, 1, 2, None, 2, 2]


def test_a_repetition_of_a_producer_tells_nothing(log):
    """F9."""
    assert log.commit([schema("order", TOTAL)], producer=("p", 1)).duplicate is False
    assert log.commit([schema("order", TOTAL)], producer=("p", 1)).duplicate is True
    assert log.schema("order").version == 1
    log.commit([schema("order", NOTE)])
    assert log.schema("order").version == 2


def test_what_is_forgotten_takes_its_schemas_along(tmp_path):
    """F9, F28."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        log.commit([schema("order", TOTAL)])
        log.commit([schema("order", NOTE), upsert("order", "1", {})], visible=False)
        assert log.schema("order").version == 1
        assert log.schema("order", 2) is None
        log.forget_after(1)
        assert log.schema("order").version == 1
        log.commit([upsert("order", "1", {})])
        assert versions(log) == [1]


def test_commits_at_the_same_time_get_versions_of_their_own(log):
    """F9, F11: each told once, rising with the log, and every change names one that was told before it."""

    def write(number):
        for n in range(10):
            log.commit(
                [upsert("order", "1", {}), schema("order", {"n": [number, n]}), upsert("order", "1", {})]
            )

    in_threads(*(lambda number=number: write(number) for number in range(4)))
    known = 0
    for change in past(log):
        if change.area is Area.SCHEMA:
            assert change.schema_version == known + 1
            known += 1
        elif change.area is Area.DATA:
            assert (change.schema_version or 0) <= known
    assert known == 40


def test_a_commit_that_fails_leaves_others_able_to_tell(log):
    with pytest.raises(InvalidChange):
        log.commit([schema("order", TOTAL), "nonsense"])
    with pytest.raises(InvalidChange):
        log.commit([schema("order", TOTAL), upsert("order", "1", {}, schema_version=4)])
    assert log.schema("order") is None
    log.commit([schema("order", TOTAL)])
    assert log.schema("order").version == 1


def test_an_interrupted_telling_leaves_others_able_to_tell(log, monkeypatch):
    """The same interrupt while it looks what was told, and while it writes."""
    for name in ("load", "mark"):
        with monkeypatch.context() as patch:
            failing(patch, schemas_of(log), name, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                log.commit([schema("order", TOTAL)])
    assert log.commit([schema("order", TOTAL)]).version == 1
    log.forget_after(1)
    assert log.commit([schema("order", NOTE)]).version == 2


@given(st.lists(st.sampled_from(["tell a", "tell b", "use a", "use b", "open"]), max_size=12))
def test_every_change_names_the_newest_schema_told_before_it(steps):
    """F10, F11: whatever the order of tellings, uses and openings."""
    with opened() as log:
        path = log.path
        current = {"a": None, "b": None}
        wanted = []
        for step in steps:
            if step == "open":
                log.close()
                log = ChangeLog.open(path, **QUICK)  # noqa: PLW2901 - the next opening of the same log
                continue
            what, kind = step.split()
            if what == "tell":
                current[kind] = (current[kind] or 0) + 1
                log.commit([schema(kind, {"v": current[kind]})])
            else:
                log.commit([upsert(kind, "1", {})])
                wanted.append(current[kind])
        assert versions(log) == wanted
        log.close()


DISK = {"sync": "always", "fill_step": 65_536}


def live(disk):
    """A short life of a log on a simulated disk."""
    with ChangeLog.open(Path("/log"), filesystem=disk, **DISK) as log:
        for number in range(3):
            log.commit([schema("order", {"n": number}), upsert("order", "1", {})])
            log.commit([upsert("order", "1", {})])


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the power fails for all threads
@pytest.mark.parametrize("fault", ["crash", "EIO", "ENOSPC"])
def test_whatever_fails_at_any_step_versions_are_those_that_the_log_tells(fault):
    """F9, F10, F11: a power cut, an error or a full disk at each operation, and then a power cut."""
    logging.disable(logging.CRITICAL)
    try:
        whole = SimulatedFileSystem()
        live(whole)
        for step in each(range(1, whole.operations + 1)):
            disk = SimulatedFileSystem(seed=step)
            disk.faults[step] = fault
            with contextlib.suppress(PowerCut, PenstockError, OSError):
                live(disk)
            disk.faults.clear()
            disk.power_cut()
            with ChangeLog.open(Path("/log"), filesystem=disk, **DISK) as log:
                told = [change.schema_version for change in past(log, Criterion(areas={Area.SCHEMA}))]
                assert told == list(range(1, len(told) + 1))
                newest = log.schema("order")
                assert (newest.version if newest else 0) == len(told), (step, told)
                assert all(log.schema("order", version) for version in versions(log))
                log.commit([schema("order", {"n": "next"})])
                assert log.schema("order").version == len(told) + 1
    finally:
        logging.disable(logging.NOTSET)


def test_logs_without_schemas_have_no_file_of_them(log):
    """Nobody pays for what is not used."""
    log.commit([upsert("order", "1", {}), upsert("order", "2", {})])
    log.commit([upsert("order", "1", {}, schema_version=3)])
    assert not (log.path / SCHEMAS_NAME).exists()


def test_a_flipped_bit_in_the_file_of_schemas_changes_no_schema():
    """F11: the file tells by a crc that it is not what was written, and what the log says counts."""
    disk = SimulatedFileSystem()
    settings = {**QUICK, "publish": False}
    with ChangeLog.open(Path("/log"), filesystem=disk, **settings) as log:
        log.commit([schema("order", TOTAL)])
        expected = log.schema("order")
    whole = bytes(disk.content(Path("/log") / SCHEMAS_NAME))
    for at in range(0, len(whole), 9):
        disk.replace(Path("/log") / SCHEMAS_NAME, whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
        with ChangeLog.open(Path("/log"), filesystem=disk, **settings) as log:
            assert log.schema("order") == expected


def in_time(act):
    """Whether something ends by itself; on a thread that holds up nobody if it does not."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


@pytest.mark.parametrize("sync", ["os", "always", "interval"])
def test_a_subscriber_may_tell_a_schema_or_forget_while_it_is_told_of_one(sync):
    """F9, E2: nothing is held over the code of subscribers, who may write to the log that calls them."""
    with opened(sync=sync) as log:

        def derive(change):
            if change.entity_type == "order":
                assert log.schema("order").version == change.schema_version
                log.commit([schema("derived", change.body)])
                log.forget_after(log.head.version - 1)

        wishes = Criterion(areas={Area.SCHEMA})
        log.changes(wishes, content=Content.BODY).subscribe(
            Probe(first=1000, on_item=derive), executor=flow.INLINE
        )
        assert in_time(lambda: [log.commit([schema("order", body)]) for body in (TOTAL, NOTE)])
        assert log.schemas() == {"derived": (1, 2), "order": (1, 2)}


def test_a_subscriber_may_tell_a_schema_while_others_are_forgotten():
    """F9, F28: what ``interval`` has left is shown by a forgetting, to subscribers who may write."""
    with opened(sync="interval", sync_interval=60) as log:

        def derive(change):
            if change.entity_type == "order" and change.area is Area.DATA:
                log.commit([schema("derived", TOTAL)])

        log.commit([schema("order", TOTAL)])
        log.changes().subscribe(Probe(first=1000, on_item=derive), executor=flow.INLINE)
        log.commit([upsert("order", "1", {})])
        log.commit([upsert("order", "2", {})], visible=False)
        assert log.visible == 1
        assert in_time(lambda: log.forget_after(2))
        assert log.schemas() == {"derived": (1,), "order": (1,)}


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt."""


def test_an_interrupt_behind_a_commit_that_tells_a_schema_wakes_subscribers_who_may_tell_one(
    monkeypatch, log
):
    """Invariant 13: it lets go before it wakes anybody, and it wakes everybody."""
    derived = []

    def derive(change):
        if change.entity_type == "order":
            derived.append(log.commit([schema("derived", TOTAL)]).version)

    log.changes(Criterion(areas={Area.SCHEMA})).subscribe(
        Probe(first=1000, on_item=derive), executor=flow.INLINE
    )

    def interrupted(_told):
        monkeypatch.undo()
        raise Interrupt

    def act():
        with pytest.raises(Interrupt):
            log.commit([schema("order", TOTAL)])

    monkeypatch.setattr(schemas_of(log), "adopt", interrupted)
    assert in_time(act)
    assert derived == [2]


def test_a_schema_that_was_received_is_found_while_its_commit_comes_to_say_so(monkeypatch, log):
    """F10: whoever looks at the very moment in which what is told moves from behind the mark to before it."""
    adopt, look = schemas_of(log).adopt, registry._assembled
    shown, go = threading.Event(), threading.Event()
    names = []

    def late(told):
        shown.set()
        assert go.wait(60)
        adopt(told)

    def slowly(*asked):
        monkeypatch.setattr(registry, "_assembled", look)
        found = look(*asked)
        go.set()
        thread.join(60)
        return found

    monkeypatch.setattr(schemas_of(log), "adopt", late)
    thread = threading.Thread(target=log.commit, args=([schema("order", TOTAL)],))
    thread.start()
    assert shown.wait(60)
    names.append(log.schemas())
    monkeypatch.setattr(registry, "_assembled", slowly)
    found = log.schema("order", 1)
    assert found is not None
    assert found.body == TOTAL
    names.append(log.schemas())
    assert names == [{"order": (1,)}] * 2


def test_the_names_of_schemas_that_were_received_are_told_while_their_commit_comes_to_say_so(
    monkeypatch, log
):
    """F10: ``schemas`` finds what ``schema`` finds."""
    adopt = schemas_of(log).adopt
    seen = []

    def look(told):
        seen.append(log.schemas())
        adopt(told)

    monkeypatch.setattr(schemas_of(log), "adopt", look)
    log.commit([schema("order", TOTAL)])
    log.commit([schema("order", NOTE), schema("item", NOTE)], visible=False)
    assert seen == [{"order": (1,)}, {"order": (1,)}]
    log.publish(2)
    assert log.schemas() == {"item": (1,), "order": (1, 2)}
