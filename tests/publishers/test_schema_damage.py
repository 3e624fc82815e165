"""Schemas that are withheld, forgotten, damaged or outlived: told once, or said to be lost, and never made up."""

import contextlib
import errno
import logging
import threading
from pathlib import Path

import pytest

from penstock_cdc.errors import LogFailed, LogFull, PenstockError
from penstock_cdc.mutations import schema
from publishers import Area, ChangeLog, Content, Criterion, upsert
from publishers.errors import AlreadyVisible, WalCorrupted
from publishers.schemas.registry import SCHEMAS_NAME
from publishers.wal.files.mirrored_file import COPY_SUFFIX, MirroredFile
from tests.harness.inside import housekeeping_of, schemas_of
from tests.harness.scale import each
from tests.publishers.support import QUICK, wait_until
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

COPY = SCHEMAS_NAME + COPY_SUFFIX
PATH = Path("/log")
DISK = {"fill_step": 0, "segment_bytes": 65_536, "retain_age": None}


@contextlib.contextmanager
def quiet():
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def opening(disk, **options):
    return ChangeLog.open(PATH, filesystem=disk, **{**DISK, "retain_bytes": None, **options})


def told(log):
    changes = log.history(Criterion(areas={Area.SCHEMA}), content=Content.BODY, limit=1000).changes
    return [(change.schema_version, change.body) for change in changes]


def pruned(disk):
    """Schemas were told in a segment that retention has deleted since."""
    with opening(disk, retain_bytes=0) as log:
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": 2})])
        for number in range(5):
            log.commit([upsert("order", str(number), {"fill": "x" * 30_000})])
        wait_until(lambda: log.oldest.version > 2 or housekeeping_of(log).poke())
    return disk.snapshot(PATH)


@pytest.mark.parametrize("name", [SCHEMAS_NAME, COPY])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty"])
def test_one_damaged_file_loses_no_schema_whatever_retention_has_deleted(name, damage):
    """F9, F11, T3: the other copy counts, and the next opening makes two of it again."""
    files = pruned(SimulatedFileSystem())
    data = bytearray(files[name])
    if damage == "flip":
        data[len(data) // 2] ^= 4
    kept = {**files, name: {"cut": bytes(data[:-3]), "empty": b""}.get(damage, bytes(data))}
    if damage == "gone":
        del kept[name]
    disk = SimulatedFileSystem.of(PATH, kept)
    with opening(disk) as log:
        assert [log.schema("order", number).body for number in (1, 2)] == [{"n": 1}, {"n": 2}]
        assert bytes(disk.content(PATH / SCHEMAS_NAME)) == bytes(disk.content(PATH / COPY))
        log.commit([schema("order", {"n": 3})])
        assert log.schema("order").version == 3


def test_every_bit_of_either_file_may_flip():
    """F9, F11, T3."""
    files = pruned(SimulatedFileSystem())
    for name in (SCHEMAS_NAME, COPY):
        for bit in range(0, len(files[name]) * 8, 3):
            data = bytearray(files[name])
            data[bit // 8] ^= 1 << bit % 8
            disk = SimulatedFileSystem.of(PATH, {**files, name: bytes(data)})
            found = MirroredFile(disk, PATH, SCHEMAS_NAME).read()
            assert found.text == files[SCHEMAS_NAME].rpartition(b"\n")[0]
            assert not found.even


def test_schemas_that_nobody_can_make_out_any_more_are_not_made_up():
    """F9: both files are damaged and retention has deleted history; without both the user has decided."""
    files = pruned(SimulatedFileSystem())
    disk = SimulatedFileSystem.of(PATH, {**files, SCHEMAS_NAME: b"{}\n", COPY: b"no"})
    with pytest.raises(WalCorrupted, match="SCHEMAS and its copy are damaged"):
        opening(disk)
    with pytest.raises(WalCorrupted):
        opening(disk)  # the lock was freed, and nothing was changed
    follower = ChangeLog.open(PATH, read_only=True, filesystem=disk)
    with pytest.raises(WalCorrupted):
        follower.schema("order")
    follower.close()
    for name in (SCHEMAS_NAME, COPY):
        disk.unlink(PATH / name)
    with opening(disk) as log:
        assert log.schema("order") is None
        log.commit([schema("order", {"n": 3})])
        assert log.schema("order").version == 1


@pytest.mark.parametrize("text", [b"{}", b"[]", b""])
def test_both_files_damaged_is_harmless_while_the_whole_history_is_kept(text):
    """F9: what is whole and no list of schemas is damaged too."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 1})])
    MirroredFile(disk, PATH, SCHEMAS_NAME).write(text)
    with opening(disk) as log:
        assert log.schema("order").body == {"n": 1}
    assert b'"n":1' in disk.content(PATH / COPY)


def test_a_log_of_an_older_release_gets_its_copy():
    """T16: one file, without a copy, is what was written before."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 1})])
    before = bytes(disk.content(PATH / SCHEMAS_NAME))
    disk.unlink(PATH / COPY)
    with opening(disk) as log:
        assert log.schema("order").version == 1
    assert bytes(disk.content(PATH / COPY)) == bytes(disk.content(PATH / SCHEMAS_NAME)) == before


def test_a_schema_told_in_a_withheld_version_is_not_told_to_followers_before_it_is_shown():
    """F9, F28."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": 2})], visible=False)
        with ChangeLog.open(PATH, read_only=True, filesystem=disk) as follower:
            assert follower.schema("order").version == 1
            assert follower.schemas() == {"order": (1,)}
            assert log.schema("order").version == 1
            assert log.schemas() == {"order": (1,)}
            log.publish(2)
            assert log.schema("order").version == 2
            wait_until(lambda: follower.head.version == 3)
            assert follower.schema("order").version == 2


@pytest.mark.parametrize("restart", [False, True])
def test_a_schema_that_was_forgotten_may_be_told_again_with_another_body(restart):
    """F9, F28: by the owner at once, or after an opening; who follows is told the later one."""
    disk = SimulatedFileSystem()
    log = opening(disk)
    log.commit([schema("order", {"n": 1})])
    log.commit([schema("order", {"n": "forgotten"}), upsert("order", "1", {})], visible=False)
    log.forget_after(1)
    if restart:
        log.close()
        disk.power_cut()
        log = opening(disk)
    assert log.schemas() == {"order": (1,)}
    log.commit([schema("order", {"n": "later"}), upsert("order", "1", {})])
    follower = ChangeLog.open(PATH, read_only=True, filesystem=disk)
    for one in (log, follower):
        assert one.schema("order").body == {"n": "later"}
        assert told(one) == [(1, {"n": 1}), (2, {"n": "later"})]
    follower.close()
    log.close()


def test_a_schema_told_by_a_withheld_commit_survives_the_death_of_its_teller():
    """F9, F28: the file was marked and not written again; what was told is found, although it is withheld."""
    disk = SimulatedFileSystem()
    log = opening(disk)
    log.commit([schema("order", {"n": 1})])
    marked = {}
    write = MirroredFile.write

    def note(twin, text):
        write(twin, text)
        if b'"pending":1' in text:
            marked.update({name: bytes(disk.content(PATH / name)) for name in (SCHEMAS_NAME, COPY)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MirroredFile, "write", note)
        log.commit([schema("order", {"n": 2})], visible=False)
    log.close()
    for name, data in marked.items():
        disk.replace(PATH / name, data)
    with opening(disk) as log:
        assert log.withheld == range(2, 3)
        log.publish(2)
        assert log.schemas() == {"order": (1, 2)}
    with opening(disk) as log:
        assert log.schema("order").body == {"n": 2}


def life(disk, stage):
    """A schema is withheld, forgotten and told again; ``stage`` says how far it got for sure."""
    log = opening(disk)
    try:
        stage.append("opened")
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": "forgotten"}), upsert("order", "1", {})], visible=False)
        stage.append("withheld")
        log.forget_after(1)
        stage.append("forgotten")
        log.commit([upsert("other", "1", {})])
        log.commit([upsert("order", "1", {})])
        log.commit([schema("order", {"n": "later"}), upsert("order", "1", {})])
        stage.append("told again")
        log.close()
    finally:
        housekeeping_of(log).close()  # the process dies as it is, and its threads with it


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", ["crash", "kill", "EIO", "ENOSPC", "short"])
def test_whatever_fails_around_a_forgetting_the_schemas_are_those_that_the_log_tells(fault):
    """F9, F10, F28, T5: each operation; a power cut afterwards, or the death of the process alone."""
    with quiet():
        whole = SimulatedFileSystem()
        life(whole, [])
        for step in each(range(1, whole.operations + 1)):
            disk = SimulatedFileSystem(seed=step)
            disk.faults[step] = "crash" if fault == "kill" else fault
            stage: list[str] = []
            with contextlib.suppress(PowerCut, PenstockError, OSError):
                life(disk, stage)
            disk.faults.clear()
            if fault in ("kill", "ENOSPC"):
                disk.kill()
            else:
                disk.power_cut()
            with opening(disk) as log:
                if log.withheld:
                    log.publish(log.withheld[-1])
                expected = told(log)
                assert [number for number, _ in expected] == list(range(1, len(expected) + 1)), step
                found = [log.schema("order", number).body for number in log.schemas().get("order", ())]
                assert found == [body for _, body in expected], (step, stage, found, expected)
                if "forgotten" in stage:
                    assert {"n": "forgotten"} not in found, step
                uses = log.history(Criterion(areas={Area.DATA}), limit=1000).changes
                assert all((change.schema_version or 0) <= len(expected) for change in uses)
                log.commit([schema("order", {"n": "next"})])
                assert log.schema("order").version == len(expected) + 1


def test_a_forgetting_that_is_refused_forgets_no_schema():
    """F9, F28: what is shown stays, and so do its schemas; nobody is held up afterwards."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": 2})])
        with pytest.raises(AlreadyVisible):
            log.forget_after(1)
        assert log.schemas() == {"order": (1, 2)}
        assert b'"pending":null' in disk.content(PATH / SCHEMAS_NAME)
        log.commit([schema("order", {"n": 3})])


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, LogFull), (errno.EIO, LogFailed)])
def test_a_disk_that_refuses_the_mark_forgets_nothing(number, error):
    """F9, F28: the mark comes first."""
    disk = SimulatedFileSystem()
    with quiet(), opening(disk, reserve_bytes=0) as log:
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": 2})], visible=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MirroredFile, "write", _refusing(number))
            with pytest.raises(error):
                log.forget_after(1)
        assert log.withheld == range(2, 3)
        assert schemas_of(log).versions("order") == [1, 2]
        log.forget_after(1)
        assert log.schemas() == {"order": (1,)}


def _refusing(number):
    write = MirroredFile.write

    def refuse(twin, text):
        if b'"pending":1' in text:
            raise OSError(number, "refused")
        write(twin, text)

    return refuse


def test_forgetting_and_telling_at_the_same_time_keep_to_each_other():
    """F9, F28: who tells while others forget is told before, and forgotten with them, or told after, and stays."""
    disk = SimulatedFileSystem()
    with opening(disk) as log:
        log.commit([schema("order", {"n": 0})])
        stop = threading.Event()

        def forget():
            while not stop.is_set():
                log.commit([upsert("other", "1", {})], visible=False)
                held = log.withheld
                if held:
                    with contextlib.suppress(PenstockError):
                        log.forget_after(held[0] - 1)

        thread = threading.Thread(target=forget)
        thread.start()
        try:
            for number in range(60):
                log.commit([schema("order", {"n": number})])
        finally:
            stop.set()
            thread.join()
        if log.withheld:
            log.publish(log.withheld[-1])
        expected = [(number, body) for number, body in told(log)]
        assert [(number, log.schema("order", number).body) for number in log.schemas()["order"]] == expected
        assert [number for number, _ in expected] == list(range(1, len(expected) + 1))


def test_schemas_are_forgotten_on_a_full_disk(tmp_path):
    """F9, F28, F43: on a real one too, room is kept back for it."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        log.commit([schema("order", {"n": 1})])
        log.commit([schema("order", {"n": 2})], visible=False)
        log.forget_after(1)
        assert log.schemas() == {"order": (1,)}
    assert (tmp_path / "log" / COPY).read_bytes() == (tmp_path / "log" / SCHEMAS_NAME).read_bytes()
