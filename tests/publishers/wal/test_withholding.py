"""What is withheld, on disks that fail: HEAD first, a cut that is finished, readers that end before it."""

from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest

from publishers.errors import LogClosed, LogFailed, LogFull, PenstockError, WalCorrupted
from publishers.wal import Follower, Wal, withholding
from publishers.wal.files.head import CUT, DEFERRED, Head, HeadState, read_head
from publishers.wal.files.segment import segment_name
from publishers.wal.files.tail_page import Tail
from publishers.wal.recover import truncate
from tests.harness.inside import writer_of
from tests.publishers.wal.logs import commit, contents, opened, options, sealed
from tests.simulation.deferral import DeferralTrial, SmallDeferralTrial
from tests.simulation.filesystem import PowerCut, SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG

pytestmark = pytest.mark.usefixtures("quiet")

CORPUS = Path(__file__).parents[2] / "corpus" / "T1-deferral.txt"


@pytest.mark.parametrize(
    "seed", [int(line.split()[0]) for line in CORPUS.read_text().splitlines() if not line.startswith("#")]
)
def test_a_life_that_has_found_something(seed):
    """F28, E20, T1."""
    DeferralTrial(seed).run()


def test_the_lives_contain_what_they_are_meant_to_test():
    """F28, F29, E20, T1: power cuts inside commits that withhold, ``publish`` and ``forget_after``.

    ``tests/simulation/test_proof.py`` runs thousands of them.
    """
    trials = [DeferralTrial(seed) for seed in range(200)]
    for trial in trials:
        trial.run()
    assert sum(trial.withholdings for trial in trials) > 50
    assert sum(trial.publishes for trial in trials) > 20
    assert sum(trial.cuts for trial in trials) > 20
    assert sum(trial.cuts_finished for trial in trials) > 2
    assert sum(trial.kept_back for trial in trials) > 50
    assert sum(trial.rolls for trial in trials) > 50


def head_of(system: SimulatedFileSystem) -> HeadState:
    file = system.open(LOG / "HEAD", "read")
    state = read_head(file)
    file.close()
    assert state is not None
    return state


def several() -> tuple[SimulatedFileSystem, Wal]:
    """Two versions that may be shown, and eight in further segments that may not."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    commit(log, b"two")
    log.show(2)
    for number in range(8):
        commit(log, b"%05d" % number * 4000)
    return system, log


def test_readers_and_followers_end_where_the_visible_versions_do():
    """F28: nothing of what is withheld is read, so nothing of it can be in any cache."""
    system, log = several()
    assert (log.visible, log.durable, log.appended) == (2, 10, 10)
    assert contents(log) == [(1, [b"one"]), (2, [b"two"])]
    follower = Follower.open(LOG, filesystem=system)
    assert follower.visible == 2
    assert len(contents(follower)) == 2
    log.show(6)
    log.publish_tail(6)
    assert [version for version, _ in contents(log)] == [1, 2, 3, 4, 5, 6]
    assert follower.refresh() == 6
    assert [version for version, _ in contents(follower)] == [1, 2, 3, 4, 5, 6]
    log.show(None)
    log.publish_tail(10)
    assert follower.refresh() == len(contents(follower)) == len(contents(log)) == 10
    assert not log.withholding


@pytest.mark.parametrize("ends", ["close", "abandon", "power cut"])
def test_what_is_withheld_stays_withheld_over_an_opening_and_a_reboot(ends):
    """F28."""
    system, log = several()
    if ends == "close":
        log.close()
    else:
        log.abandon()
    if ends == "power cut":
        system.power_cut()
    system.boot += 1  # TAIL is of another boot, so HEAD counts
    follower = Follower.open(LOG, filesystem=system)
    assert len(contents(follower)) == follower.visible == 2
    log = opened(system)
    assert (log.visible, log.durable, log.withholding) == (2, 10, True)
    assert len(contents(log)) == 2
    assert follower.refresh() == 2
    log.show(None)
    log.publish_tail(10)
    assert follower.refresh() == len(contents(follower)) == 10


@pytest.mark.parametrize("keep", range(2, 10))
def test_what_is_forgotten_is_gone_and_others_take_its_place(keep):
    """E20: also for those who had the log open, from before and from HEAD alone."""
    system, log = several()
    early = Follower.open(LOG, filesystem=system)
    log.abandon()
    with mock.patch.object(Tail, "open", return_value=None):
        late = Follower.open(LOG, filesystem=system)
    log = opened(system)
    epoch = log.epoch
    log.forget_after(keep)
    assert (log.appended, log.durable, log.visible, log.epoch) == (keep, keep, 2, epoch + 1)
    assert log.epochs[-1][:2] == (epoch + 1, keep + 1)
    assert log.epochs[-1].random == head_of(system).random != log.epochs[-2].random
    assert log.withholding == (keep > 2)
    assert not head_of(system).flags & CUT
    log.maintain()
    for number in range(keep, 12):
        commit(log, b"again%02d" % number * 3000)
    log.show(None)
    log.publish_tail(12)
    expected = [
        b"one",
        b"two",
        *(b"%05d" % number * 4000 for number in range(keep - 2)),
        *(b"again%02d" % number * 3000 for number in range(keep, 12)),
    ]
    for reader in (log, early, late):
        if isinstance(reader, Follower):
            assert reader.refresh() == 12
            assert reader.epochs == log.epochs
        assert contents(reader) == [(version, [body]) for version, body in enumerate(expected, 1)]
    log.close()
    assert len(contents(opened(system))) == 12


def test_producers_are_rolled_back():
    """E20."""
    log = opened(SimulatedFileSystem())
    producer = UUID(int=7)
    log.append([sealed(b"a", producer=producer, sequence=1)])
    log.sync()
    log.show(1)
    log.append([sealed(b"b", producer=producer, sequence=2), sealed(b"c", producer=UUID(int=8), sequence=5)])
    log.forget_after(1)
    state = log.producer(producer)
    assert state is not None
    assert state[:2] == (1, 1)
    assert log.producer(UUID(int=8)) is None
    log.close()
    with pytest.raises(LogClosed):
        log.forget_after(1)


def test_a_head_that_tells_of_more_than_a_crash_has_left_withholds_nothing():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    log.append([sealed(b"two")])  # on its way to be shown, and not synced
    log.show(2)
    assert head_of(system).flags & DEFERRED
    assert head_of(system).newest_visible == 1
    log.abandon()
    system.power_cut()
    log = opened(system)
    assert not log.withholding or log.appended > 2
    assert log.visible == log.durable
    assert not head_of(system).flags & DEFERRED


def test_more_versions_than_places_are_remembered_for():
    """A visible version is found in the log where its end is not remembered any more."""
    with mock.patch("publishers.wal.append.appender._ENDS", 3):
        system, log = several()
        log.show(8)
        log.publish_tail(8)
        assert len(contents(log)) == 8
        assert len(contents(Follower.open(LOG, filesystem=system))) == 8


# --- a disk that fails -------------------------------------------------------------------------------------------------


def life(system: SimulatedFileSystem, marks: dict[str, int]) -> None:
    """A fixed life: what must be there, and may be shown, is noted as soon as it is sure."""
    log = opened(system, options(fill_step=300))
    try:
        commit(log, b"one")
        marks.update(least=1, shown=1, most=1)
        log.show(1)
        for number in range(5):
            marks["newest"] = log.appended + 1
            commit(log, b"%05d" % number * 4000)
            marks["least"] = log.durable
        marks["most"] = 3
        log.show(3)
        log.publish_tail(3)
        marks["shown"] = 3
        marks["least"] = 4
        log.forget_after(4)
        marks["newest"] = 5
        commit(log, b"new five" * 2000)
        marks["least"] = marks["most"] = marks["again"] = 5
        log.show(None)
        log.publish_tail(5)
        marks["shown"] = 5
        log.close()
    finally:
        if not system.dead:
            log.abandon()


def operations() -> int:
    system = SimulatedFileSystem()
    life(system, {})
    return system.operations


@pytest.mark.parametrize("kind", ["crash", "EIO", "ENOSPC", "short"])
def test_any_operation_may_fail(kind):
    """F28, F29, T5: a crash or an error at each step of withholding, showing and forgetting."""
    total = operations()
    assert total > 60
    for number in range(1, total + 1):
        for seed in range(3 if kind == "crash" else 1):
            system = SimulatedFileSystem(number * 10 + seed)
            system.faults[number] = kind
            marks = {"least": 0, "shown": 0, "most": 0, "newest": 1}
            try:
                life(system, marks)
            except (LogFailed, LogFull, PowerCut):
                assert kind != "short"
            system.power_cut()
            try:
                log = opened(system)
                assert marks["least"] <= log.durable <= max(marks["newest"], 6), marks
                assert marks["shown"] <= log.visible <= max(marks["most"], 1), (marks, log.visible)
                assert [version for version, _ in contents(log)] == list(range(1, log.visible + 1))
                if log.withholding:
                    log.show(None)
                    log.publish_tail(log.durable)
                found = contents(log)
                assert len(found) == log.durable
                if "again" in marks:
                    assert found[4] == (5, [b"new five" * 2000])
            except BaseException as error:
                error.add_note(f"{kind} at operation {number} of {total}, {marks}")
                raise
            log.close()


def test_a_log_that_cannot_be_read_is_not_cut():
    system, log = several()
    damaged = mock.patch.object(withholding, "place_of", side_effect=WalCorrupted(1, 64, "bad"))
    with damaged, pytest.raises(WalCorrupted):
        log.forget_after(3)
    assert log.failed is None
    assert log.durable == 10
    unreadable = mock.patch.object(SimulatedFile, "pread", side_effect=OSError(5, "EIO"))
    with unreadable, pytest.raises(WalCorrupted):
        log.forget_after(3)
    placed = mock.patch.object(withholding, "place_of", return_value=(1, 64))
    with placed, unreadable, pytest.raises(WalCorrupted, match=r"the header cannot be read .*EIO"):
        log.forget_after(3)
    system.content(LOG / segment_name(1))[0] ^= 1
    with pytest.raises(WalCorrupted, match=r"the header cannot be read \(the crc of the header is wrong\)"):
        log.forget_after(3)
    assert log.failed is None
    assert not head_of(system).flags & CUT


def test_a_cut_that_is_interrupted_fails_the_log_and_recovery_finishes_it():
    """Invariant 13: what stops it at whatever place, an opening goes on."""
    for name in ("truncate", "restore"):
        for error in (KeyboardInterrupt(), OSError(5, "EIO")):
            system, log = several()
            expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else LogFailed
            with mock.patch.object(withholding, name, side_effect=error), pytest.raises(expected):
                log.forget_after(4)
            assert log.failed is not None
            with pytest.raises(LogFailed):
                log.show(None)
            log.close()
            assert head_of(system).flags & CUT
            log = opened(system)
            assert (log.durable, log.visible) == (4, 2)
            assert not head_of(system).flags & CUT
    system, log = several()
    interrupted = mock.patch.object(Head, "write", side_effect=KeyboardInterrupt)
    with interrupted, pytest.raises(KeyboardInterrupt):
        log.forget_after(4)
    assert log.failed is not None


# --- is the harness sharp? -----------------------------------------------------------------------------------------------


def _say_nothing(kept: withholding.Withholding, visible: int | None) -> None:
    kept.active = visible is not None


def _cut_at_once(*arguments, **named) -> None:
    if not named.get("flags"):
        _write_head(*arguments, **named)
        return
    head = arguments[0]
    head.state = head.state._replace(flags=head.state.flags | CUT)


def _count_all_the_same(head: Head, at: int) -> None:
    """A slot whose writing has failed is left as it is."""


def _unsynced_cut(filesystem, directory, segment, offset, numbers) -> None:
    no_sync = mock.patch.object(truncate, "sync_file")
    with no_sync, mock.patch.object(truncate, "sync_names"):
        _carry_out(filesystem, directory, segment, offset, numbers)


_write_head = Head.write
_carry_out = truncate.truncate

MUTANTS = {
    "HEAD not told of what is withheld": (withholding.Withholding, "show", _say_nothing),
    "HEAD not told of the cut": (Head, "write", _cut_at_once),
    "failed slot of HEAD counts": (Head, "_invalidate", _count_all_the_same),
    "cut not synced": (withholding, "truncate", _unsynced_cut),
    "readers see what is withheld": (
        withholding.Withholding,
        "readable",
        lambda kept: writer_of(kept).limit,
    ),
}

NOTICED_BY = {"HEAD not told of the cut": [561], "failed slot of HEAD counts": [1488]}
"""Lives that have noticed a mutant which few notice: tried first, they save the others."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_does_not_survive(name):
    target, attribute, replacement = MUTANTS[name]
    with mock.patch.object(target, attribute, replacement):
        for seed in (*NOTICED_BY.get(name, ()), *range(12000)):
            try:
                SmallDeferralTrial(seed).run()
            except (AssertionError, PenstockError, OSError, KeyError):
                return
    pytest.fail(f"{name} survived 12000 lives")


def test_the_owner_reads_what_he_withholds_and_a_follower_learns_what_is_shown():
    """F28: the one for his own use, the other before he has taken it up, from TAIL or from HEAD."""
    system, log = several()
    assert log.visible == 2
    location = log.whole.locate(10)
    frame = log.whole.read(location)
    assert frame is not None
    assert frame.header.version == 10
    follower = Follower.open(LOG, filesystem=system)
    log.show(6)
    log.publish_tail(6)
    assert (follower.visible, follower.shown) == (2, 6)
    follower.close()
    system.boot += 1
    follower = Follower.open(LOG, filesystem=system)
    assert follower.shown == follower.visible == 6
    follower.close()
    log.abandon()


# --- a damaged HEAD ------------------------------------------------------------------------------------------------------
