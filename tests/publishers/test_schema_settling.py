"""Schemas and what comes in between: writes that fail, interrupts, forgetting, and code that makes changes meanwhile."""

import contextlib
import errno
import itertools
import logging
import shutil
import sys
import threading
from pathlib import Path

import pytest

from penstock_cdc.errors import InvalidChange, LogFailed
from penstock_cdc.mutations import schema
from publishers import Area, ChangeLog, Content, Criterion, upsert
from publishers.errors import AlreadyVisible
from publishers.mutations.mutation import columns_of
from publishers.schemas import registry, stamping
from publishers.schemas.registry import SCHEMAS_NAME
from publishers.wal import withholding
from publishers.wal.files.mirrored_file import MirroredFile
from publishers.wal.recover.truncate import truncate
from tests.harness.inside import committer_of, files_of, house_step_of, housekeeping_of, schemas_of, writer_of
from tests.harness.scale import each
from tests.publishers.support import QUICK, opened, scratch, wait_until
from tests.simulation.filesystem import SimulatedFileSystem

PATH = Path("/log")
DISK = {"fill_step": 0, "segment_bytes": 65_536, "retain_age": None, "retain_bytes": 0}


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt."""


def struck(*_):
    raise Interrupt


def opening(disk, **options):
    return ChangeLog.open(PATH, filesystem=disk, **{**DISK, **options})


def told(log):
    """What the log itself says."""
    changes = log.history(Criterion(areas={Area.SCHEMA}), content=Content.BODY, limit=1000).changes
    return [(change.schema_version, change.body) for change in changes]


def known(log):
    """What is looked up."""
    return [(number, log.schema("order", number).body) for number in log.schemas().get("order", ())]


def stamps(log):
    return [change.schema_version for change in log.history(Criterion(areas={Area.DATA}), limit=1000).changes]


def grow(log):
    """Some segments more."""
    for number in range(6):
        log.commit([upsert("filler", str(number), {"fill": "x" * 30_000})])


def in_time(act):
    """Whether something ends by itself; on a thread that holds up nobody if it does not."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


def in_background(act):
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def unwritable(error=errno.EIO):
    """The file of schemas can be marked, and not be put right."""
    write = MirroredFile.write

    def refuse(twin, text):
        if text.endswith(b'"pending":null}'):
            raise OSError(error, "refused")
        write(twin, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MirroredFile, "write", refuse)
        yield


def prune(log):
    """Lets retention take the beginning of the history."""
    grow(log)
    wait_until(lambda: log.oldest.version > 3 or housekeeping_of(log).poke())


@pytest.mark.parametrize("where", ["commit", "opening", "forgetting"])
def test_what_the_file_does_not_tell_yet_is_not_deleted(where, caplog):
    """F9, F11: a write that failed is repeated, and the log tells what it did not until then."""
    disk = SimulatedFileSystem()
    log = opening(disk)
    log.commit([schema("order", {"n": 1})])
    if where == "opening":
        schemas_of(log).mark()
        marked = bytes(disk.content(PATH / SCHEMAS_NAME))
        log.commit([schema("order", {"n": 2})])
        log.close()
        disk.replace(PATH / SCHEMAS_NAME, marked)
        disk.replace(PATH / f"{SCHEMAS_NAME}.copy", marked)
    if where == "forgetting":
        log.commit([schema("order", {"n": "forgotten"})], visible=False)
    with unwritable(), caplog.at_level(logging.WARNING):
        if where == "opening":
            log = opening(disk)
        elif where == "commit":
            log.commit([schema("order", {"n": 2})])
        else:
            log.forget_after(1)
        grow(log)
        for _ in range(3):
            house_step_of(log)()
        assert log.oldest.version <= 2
        assert [one.message for one in caplog.records if SCHEMAS_NAME in one.message] == [
            "SCHEMAS cannot be put right: [Errno 5] refused; what may tell schemas is not deleted until it can"
        ]
        log.close()
    expected = [(1, {"n": 1}), (2, {"n": 2})][: 1 if where == "forgetting" else 2]
    with opening(disk) as log:
        assert known(log) == expected
        prune(log)
    with opening(disk) as log:
        assert known(log) == expected
        log.commit([schema("order", {"n": "next"})])
        assert log.schema("order").version == len(expected) + 1


def test_a_write_that_failed_is_repeated_although_nobody_tells_another_schema():
    """F9, F11: and then retention goes on."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        with unwritable():
            log.commit([schema("order", {"n": 1})])
            assert b'"pending":0' in disk.content(PATH / SCHEMAS_NAME)
        wait_until(
            lambda: b'"pending":null' in disk.content(PATH / SCHEMAS_NAME) or housekeeping_of(log).poke()
        )
        prune(log)
        assert known(log) == [(1, {"n": 1})]
    with opening(disk) as log:
        assert known(log) == [(1, {"n": 1})]


def test_a_file_that_cannot_be_written_again_later_is_logged_again(caplog):
    """Although it was a commit that wrote it meanwhile, and not the housekeeping."""
    with opened() as log, caplog.at_level(logging.WARNING):
        housekeeping_of(log).close()
        for number in range(2):
            with unwritable():
                log.commit([schema("order", {"n": number})])
                house_step_of(log)()
            log.commit([schema("order", {"n": "written"})])
            house_step_of(log)()
    assert len([one for one in caplog.records if SCHEMAS_NAME in one.message]) == 2


@pytest.mark.parametrize("then", ["housekeeping", "another", "forgetting"])
@pytest.mark.parametrize("error", [Interrupt, OSError])
def test_a_log_that_has_failed_leaves_the_mark_to_the_next_opening(monkeypatch, error, then):
    """F9, F11: what was being written is not to be read now, and may be there then."""
    disk = SimulatedFileSystem()
    log = opening(disk)
    log.commit([schema("order", {"n": 1})])
    writer = writer_of(files_of(log))

    def fails():
        if error is OSError:
            writer.health.fail(OSError("no such luck"))
            raise LogFailed("unknown", "no such luck")
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, "sync", fails)
        with pytest.raises((Interrupt, LogFailed)):
            log.commit([schema("order", {"n": 2})])
    if then == "housekeeping":
        house_step_of(log)()
    else:
        with pytest.raises(LogFailed):
            log.commit([schema("order", {"n": 3})]) if then == "another" else log.forget_after(0)
    log.close()
    with opening(disk) as log:
        assert known(log) == told(log) == [(1, {"n": 1}), (2, {"n": 2})]


@pytest.mark.parametrize("what", ["unreadable", "damaged", "gone"])
def test_a_repetition_does_not_make_the_log_forget_what_it_knows(monkeypatch, what):
    """F9, F10: whatever became of the file meanwhile; it is made anew."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        housekeeping_of(log).close()
        for _ in range(2):
            log.commit([schema("order", {"n": 1})], producer=("p", 1))
        grow(log)
        for name in (PATH / SCHEMAS_NAME, PATH / f"{SCHEMAS_NAME}.copy"):
            disk.unlink(name) if what == "gone" else disk.replace(name, b"no such text")
        with monkeypatch.context() as patch:
            if what == "unreadable":
                patch.setattr(MirroredFile, "read", struck)
            log.commit([upsert("order", "1", {})])
        assert (known(log), stamps(log)[-1]) == ([(1, {"n": 1})], 1)
        house_step_of(log)()
    with opening(disk) as log:
        assert known(log) == [(1, {"n": 1})]


def test_a_commit_that_tells_is_not_waited_for_by_the_housekeeping():
    """The file is marked for as long as it takes; what it is going to tell is kept, and the rest is cared for."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 1})])
        with schemas_of(log).turn:
            schemas_of(log).mark()
            assert in_time(house_step_of(log))
            assert b'"pending":1' in disk.content(PATH / SCHEMAS_NAME)
            assert schemas_of(log).settle() == 2
        house_step_of(log)()
        assert b'"pending":null' in disk.content(PATH / SCHEMAS_NAME)


def test_commits_that_tell_nothing_do_not_wait_for_one_that_tells(log):
    """F9: nor do they look behind its mark, which it may yet have to number by."""
    log.commit([schema("order", {"n": 1})])
    with schemas_of(log).turn:
        schemas_of(log).mark()
        schemas_of(log)._replay = None  # nobody asks it
        assert in_time(lambda: log.commit([upsert("order", "1", {})]))
        assert in_time(lambda: log.commit_columns(made([columns_of([upsert("order", "2", {})])])))
    del schemas_of(log)._replay
    assert stamps(log) == [1, 1]


def test_a_forgetting_that_is_refused_sets_no_mark_before_what_is_kept(monkeypatch):
    """F9, F28: what is visible stays, and its schemas may have been told in history that is gone."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([upsert("other", "1", {})])
        log.commit([schema("order", {"n": 1})])
        prune(log)
        refuse = committer_of(log).forget_after

        found = {}

        def look(*arguments, **switches):
            found.update(disk.snapshot(PATH))
            refuse(*arguments, **switches)

        monkeypatch.setattr(committer_of(log), "forget_after", look)
        with pytest.raises(AlreadyVisible):
            log.forget_after(1)
    with opening(SimulatedFileSystem.of(PATH, found)) as log:
        assert known(log) == [(1, {"n": 1})]


@pytest.mark.parametrize("where", ["adopt", "done"])
def test_an_interrupt_behind_a_commit_gives_its_version_to_no_other(monkeypatch, log, where):
    """F9, F10, invariant 13: what was told is known at once."""
    log.commit([schema("order", {"n": 1})])
    with monkeypatch.context() as patch:
        patch.setattr(schemas_of(log) if where == "adopt" else stamping.Stamping, where, struck)
        with pytest.raises(Interrupt):
            log.commit([schema("order", {"n": 2})])
    log.commit([upsert("order", "1", {})])
    assert known(log) == told(log) == [(1, {"n": 1}), (2, {"n": 2})]
    log.commit([schema("order", {"n": 3}), upsert("order", "1", {})])
    assert known(log) == told(log)
    assert stamps(log) == [2, 3]


def test_an_interrupt_behind_a_forgetting_leaves_no_schema_of_it(monkeypatch, log):
    """F9, F28, invariant 13."""
    log.commit([schema("order", {"n": 1})])
    log.commit([schema("order", {"n": "forgotten"})], visible=False)
    forget = committer_of(log).forget_after

    def interrupted(*arguments, **switches):
        forget(*arguments, **switches)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(committer_of(log), "forget_after", interrupted)
        with pytest.raises(Interrupt):
            log.forget_after(1)
    log.commit([upsert("order", "1", {})])
    assert stamps(log) == [1]
    assert known(log) == told(log) == [(1, {"n": 1})]


def test_schemas_are_looked_up_while_others_are_cut_off(monkeypatch):
    """F9, F28: who looks does not read what is not shown."""
    log = opening(SimulatedFileSystem())
    log.commit([schema("order", {"n": 1})])
    log.commit([schema("order", {"n": "forgotten"})], visible=False)
    found = []

    def cut(*arguments):
        truncate(*arguments)
        found.append((log.schemas(), log.schema("order").body, log.schema("order", 2)))

    monkeypatch.setattr(withholding, "truncate", cut)
    log.forget_after(1)
    assert found == [({"order": (1,)}, {"n": 1}, None)]
    log.close()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("spool_bytes", [None, 65_536])
def test_code_that_makes_changes_may_commit_and_tell_schemas_itself(spool_bytes, compress):
    """F9, E2: it runs before others are kept waiting, whether in memory or through a spool."""
    options = {} if spool_bytes is None else {"spool_bytes": spool_bytes}
    bodies = [{"n": number, "fill": "x" * 20_000} for number in range(8)]
    with opened(compress=compress, origin="here", **options) as log:

        def make():
            yield columns_of([upsert("order", "0", {})])
            yield columns_of([schema("order", {"n": "outer"}), upsert("order", "1", {})])
            log.commit([schema("order", {"n": "inner"}), upsert("item", "1", {})])
            log.commit([schema("order", {"n": "dropped"})], visible=False)
            log.forget_after(1)
            for body in bodies:
                yield columns_of([upsert("order", "2", body), upsert("item", "2", body)])

        assert in_time(lambda: log.commit_columns(make()))
        assert known(log) == told(log) == [(1, {"n": "inner"}), (2, {"n": "outer"})]
        rows = log.history(Criterion(areas={Area.DATA}), content=Content.BODY, limit=1000).changes
        assert [(row.entity_type, row.schema_version) for row in rows] == [
            *[("item", None), ("order", None), ("order", 2)],
            *[("order", 2), ("item", None)] * 8,
        ]
        assert [row.body for row in rows[3::2]] == bodies
        assert not list(log.path.glob("spool*"))


def test_code_that_makes_changes_and_fails_leaves_others_able_to_tell(log):
    """F9: whether what is wrong is the code, or what it made."""

    def fails(wrong):
        yield columns_of([schema("order", {"n": "never"})])
        if wrong is None:
            raise Interrupt
        yield columns_of([upsert("order", "1", {}, schema_version=wrong)])

    with pytest.raises(Interrupt):
        log.commit_columns(fails(None))
    with pytest.raises(InvalidChange):
        log.commit_columns(fails(9))
    assert in_time(lambda: log.commit([schema("order", {"n": 1})]))
    assert known(log) == told(log) == [(1, {"n": 1})]


def test_changes_whose_schema_is_forgotten_on_their_way_are_refused(log):
    """F10, F28: no change names a version that was never told, or that another schema gets."""
    log.commit([schema("order", {"n": 1})])
    log.commit([schema("order", {"n": "forgotten"})], visible=False)

    def make(kind):
        yield columns_of([upsert(kind, "1", {})])
        log.forget_after(1)
        yield columns_of([upsert(kind, "2", {})])

    with pytest.raises(InvalidChange, match=r"schemas were forgotten while .* commit them again") as refused:
        log.commit_columns(make("order"), producer=("p", 1))
    assert (refused.value.parameter, refused.value.value) == ("schema_version", {"order": 2})
    assert log.head.version == 2
    assert log.commit_columns(make("order"), producer=("p", 1)).duplicate is False
    assert stamps(log) == [1, 1]
    log.commit([schema("order", {"n": "forgotten"})], visible=False)
    assert log.commit_columns(map(columns_of, [[upsert("item", "1", {})]]), visible=False).version == 4
    log.forget_after(2)
    assert log.schemas() == {"order": (1,)}


def test_a_repetition_is_told_so_although_a_schema_was_forgotten_on_its_way(log):
    """F10: nothing is written, so nothing can name the wrong version."""
    log.commit([schema("order", {"n": 1})])
    log.commit([upsert("order", "1", {})], producer=("p", 1))
    log.commit([schema("order", {"n": "forgotten"})], visible=False)

    def make():
        yield columns_of([upsert("order", "1", {})])
        log.forget_after(2)

    assert log.commit_columns(make(), producer=("p", 1)).duplicate is True


def test_a_retry_that_is_up_to_date_is_not_refused_for_the_one_that_was_not(monkeypatch, log):
    """F10: although both are in one group."""
    log.commit([schema("order", {"n": 1})])
    log.commit([schema("order", {"n": "forgotten"})], visible=False)
    leading, go, refused = threading.Event(), threading.Event(), []
    append = files_of(log).append

    def held(transactions):
        leading.set()
        assert go.wait(60)
        return append(transactions)

    def make():
        yield columns_of([upsert("order", "1", {})])
        log.forget_after(1)
        monkeypatch.setattr(files_of(log), "append", held)
        threads.append(in_background(lambda: log.commit([upsert("item", "1", {})])))
        assert leading.wait(60)

    def stale():
        with pytest.raises(InvalidChange) as error:
            log.commit_columns(make(), producer=("p", 1))
        refused.append(error.value)

    threads = []
    threads.append(in_background(stale))
    wait_until(lambda: committer_of(log).waiting[0] == 1)
    threads.append(in_background(lambda: log.commit([upsert("order", "1", {})], producer=("p", 1))))
    wait_until(lambda: committer_of(log).waiting[0] == 2)
    go.set()
    for thread in threads:
        thread.join(60)
    assert refused
    assert log.produced("p").version == 3
    assert sorted(stamps(log), key=str) == [1, None]


def test_changes_of_other_types_are_committed_while_schemas_are_forgotten(log):
    log.commit([upsert("other", "1", {})])
    log.commit([schema("order", {"n": "forgotten"})], visible=False)

    def make():
        yield columns_of([upsert("item", "1", {})])
        log.forget_after(1)

    assert log.commit_columns(make()).version == 2


TRACED = {
    module.__file__: Path(module.__file__).read_text("utf-8").splitlines() for module in (registry, stamping)
}


def interrupt_at(number):
    """A trace function that interrupts where a line begins, but not at a ``with``: no real one is seen where that ends."""
    lines = itertools.count()

    def step(frame, event, _argument):
        text = TRACED[frame.f_code.co_filename][frame.f_lineno - 1]
        if event == "line" and not text.lstrip().startswith("with ") and next(lines) == number:
            sys.settrace(None)
            raise Interrupt
        return step

    return lambda frame, _event, _argument: step if frame.f_code.co_filename in TRACED else None


def interrupted(act, number):
    """Whether a call came as far as the line that interrupts it."""
    sys.settrace(interrupt_at(number))
    try:
        act()
    except Interrupt:
        return True
    except (InvalidChange, LogFailed):
        return False
    finally:
        sys.settrace(None)
    return False


def made(columns):
    yield from columns


CALLS = {
    "tell": lambda log: log.commit([schema("order", {"n": "met"}), upsert("order", "1", {})]),
    "make": lambda log: log.commit_columns(made([columns_of([schema("order", {"n": "met"})])])),
    "refused": lambda log: log.commit(
        [schema("order", {"n": "no"}), upsert("order", "1", {}, schema_version=9)]
    ),
    "forget": lambda log: log.forget_after(2),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_line_leaves_others_able_to_tell_what_nobody_told(call):
    """F9, F10, invariant 13: nobody waits for ever, and every version is that of one schema."""
    for number in each():
        path = scratch() / "log"
        with ChangeLog.open(path, **QUICK) as log:
            log.commit([schema("order", {"n": 1})])
            log.commit([schema("order", {"n": 2})])
            if call == "forget":
                log.commit([schema("order", {"n": "withheld"})], visible=False)
            hit = interrupted(lambda log=log: CALLS[call](log), number)
            if not committer_of(log).failed:
                assert in_time(lambda log=log: log.commit([schema("order", {"n": "next"})])), number
                if log.withheld:
                    log.publish(log.withheld[-1])
                log.commit([upsert("order", "1", {})])
                assert known(log) == told(log), number
                assert [version for version, _ in told(log)] == list(range(1, len(told(log)) + 1)), number
                assert stamps(log)[-1] == len(told(log))
            truth = told(log)
        with ChangeLog.open(path, **QUICK) as log:
            assert known(log)[: len(truth)] == truth, number
        shutil.rmtree(path.parent)
        if not hit:
            break
    assert number > 20
