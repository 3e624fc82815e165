"""Hard links as a log offers them."""

import pytest

from flow.clock import SystemClock
from publishers import ChangeLog, Position
from publishers.errors import HistoryPruned, InvalidOption, LogClosed, LogGone, LogReadOnly
from tests.harness.inside import files_of, house_step_of, housekeeping_of, writer_of
from tests.publishers.support import QUICK, Probe, everything, fill, scratch, wait_until

SMALL = {**QUICK, "segment_bytes": 65_536, "retain_bytes": 0, "tail_poll": 0.001}


class Clock(SystemClock):
    """The time is what a test says."""

    def __init__(self):
        self.now = 1_000_000_000_000_000

    def now_us(self):
        return self.now

    def monotonic(self):
        return self.now / 1e6


def segments(path):
    return sorted(one.name for one in path.glob("wal-*.log"))


def test_a_linked_consumer_is_served_what_the_log_has_deleted():
    """F46: subscribers of its opening, a RESYNC one and history, beside an ordinary reader that gets HistoryPruned."""
    path = scratch() / "log"
    with ChangeLog.open(path, **SMALL) as owner:
        assert owner.links.add("spark") == path / "held" / "spark"
        assert owner.links.consumers == ("spark",)
        fill(owner, 100, changes=50)
        wait_until(lambda: owner.oldest.version > 50)
        with (
            ChangeLog.open(path, read_only=True, consumer="spark", **SMALL) as consumer,
            ChangeLog.open(path, read_only=True, **SMALL) as other,
        ):
            assert consumer.oldest == Position(1)
            with pytest.raises(HistoryPruned):
                other.history(since=Position(1))
            probe = Probe(first=100_000)
            consumer.changes(since=Position(1)).subscribe(probe)
            probe.wait_for(5100)
            fill(owner, 1)
            probe.wait_for(5102)
            assert probe.positions == everything(consumer)
            wait_until(lambda: owner.statistics().held_bytes > 0)
            assert owner.links.held_bytes == owner.statistics().held_bytes
            assert (consumer.links.held_bytes, consumer.statistics().held_bytes) == (0, 0)
            before = len(segments(path / "held" / "spark"))
            assert consumer.links.release(Position(10)) == 0
            assert consumer.links.release(consumer.head) == before - 1
            assert len(segments(path / "held" / "spark")) == 1
            assert consumer.oldest > Position(50)
            wait_until(lambda: owner.statistics().held_bytes == 0)


def test_links_belong_to_the_owner_and_releases_to_the_consumer():
    path = scratch() / "log"
    with ChangeLog.open(path, **SMALL) as owner:
        owner.links.add("spark")
        with ChangeLog.open(path, read_only=True, **SMALL) as reader:
            for call in (
                lambda: reader.links.add("x"),
                lambda: reader.links.remove("x"),
                lambda: reader.links.consumers,
            ):
                with pytest.raises(LogReadOnly):
                    call()
            with pytest.raises(InvalidOption):
                reader.links.release(Position(1))
        with pytest.raises(InvalidOption):
            owner.links.release(Position(1))
        owner.links.remove("spark")
        assert owner.links.consumers == ()
        with pytest.raises(InvalidOption):
            ChangeLog.open(path, read_only=True, consumer="spark")
    with pytest.raises(InvalidOption):
        ChangeLog.open(path, consumer="spark")
    with pytest.raises(LogClosed):
        owner.links.add("spark")
    with pytest.raises(LogClosed):
        owner.links.release(Position(1))


def test_a_segment_above_its_age_is_closed_although_nobody_commits():
    """F41, F46: a consumer is not held up by a writer that is idle; an empty segment is never closed."""
    path, clock = scratch() / "log", Clock()
    with ChangeLog.open(path, clock=clock, segment_age=60.0, **QUICK) as owner:
        owner.links.add("spark")
        house = housekeeping_of(owner)
        fill(owner, 3)
        clock.now += 59_000_000
        house.poke()
        clock.now += 2_000_000
        house.poke()
        wait_until(lambda: len(segments(path)) == 2)
        clock.now += 3_600_000_000
        for _ in range(3):
            house_step_of(owner)()
        assert len(segments(path)) == 2, "nothing was committed since"
        assert segments(path / "held" / "spark") == segments(path)
        with ChangeLog.open(path, read_only=True, consumer="spark", **SMALL) as consumer:
            assert consumer.links.release(consumer.head) == 1
            fill(owner, 1)
            wait_until(lambda: consumer.head == owner.head)
            assert consumer.oldest == Position(4)
        assert [position.version for position in everything(owner)] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_without_an_age_no_segment_is_closed_early():
    """F41: the trigger is off by default."""
    path, clock = scratch() / "log", Clock()
    with ChangeLog.open(path, clock=clock, **QUICK) as owner:
        fill(owner, 3)
        clock.now += 365 * 86_400_000_000
        house_step_of(owner)()
        fill(owner, 1)
        assert len(segments(path)) == 1


def test_a_roll_by_age_that_finds_no_room_is_tried_again(monkeypatch):
    """F41: and it harms nothing."""
    path, clock = scratch() / "log", Clock()
    with ChangeLog.open(path, clock=clock, segment_age=60.0, **QUICK) as owner:
        fill(owner, 1)
        clock.now += 61_000_000
        writer = writer_of(files_of(owner))
        with monkeypatch.context() as patch:
            patch.setattr(writer, "roll", full)
            house_step_of(owner)()
            fill(owner, 0)
        house_step_of(owner)()
        assert len(segments(path)) == 2
        fill(owner, 1)
        assert len(everything(owner)) == 4


def full():
    from publishers.errors import LogFull

    raise LogFull(0, 1)


def test_a_consumer_whose_log_is_gone_is_told():
    """F144, F46: its links go with the directory."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as owner:
        owner.links.add("spark")
        fill(owner, 2)
    with ChangeLog.open(path, read_only=True, consumer="spark", **SMALL) as consumer:
        probe = Probe(first=4)
        consumer.changes(since=Position(1)).subscribe(probe)
        probe.wait_for(4)
        path.rename(path.with_name("away"))
        wait_until(lambda: probe.error, probe.state)
        assert isinstance(probe.error, LogGone)
