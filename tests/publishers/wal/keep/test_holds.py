"""Holds: floors for retention, each alone and all together, beside a model that is a list of segments."""

import contextlib
import logging
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_cdc.errors import HistoryPruned, InvalidOption
from penstock_cdc.types import HoldState
from publishers import Position
from publishers.wal.files.segment import segment_name
from publishers.wal.keep.retention import Retention
from publishers.wal.keep.segment_ages import Ages
from publishers.wal.read.catalog import Catalog, SegmentEntry
from tests.harness.inside import catalog_of, filesystem_of
from tests.harness.scale import scaled
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

SECOND = 1_000_000
KEEP = {"retain_bytes": 0, "retain_age": None}


@pytest.fixture(autouse=True)
def quiet():
    """Holds are lost here on purpose, and each is logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def swept(wal):
    while wal.maintain():
        pass
    return wal.reader.oldest


def log_of(segments, clock=None, **overrides):
    system = SimulatedFileSystem()
    wal = opened(system, options(**{**KEEP, **overrides}), clock=clock)
    fill_segments(wal, segments)
    return wal, [entry.first_version for entry in catalog_of(wal).entries]


def test_nothing_is_deleted_that_somebody_holds():
    """F45: the floor is the least of all holds; each that moves or is released frees what only it has held."""
    wal, first = log_of(5)
    holds = wal.retention.holds
    slow = holds.add("slow", Position(first[1], 3))
    fast = holds.add("fast", Position(first[3] - 1))
    assert swept(wal) == first[1]
    assert (slow.state, fast.state) == (HoldState.EXTENDED, HoldState.EXTENDED)
    slow.move(Position(first[4] + 1))
    assert swept(wal) == first[2]  # now the other one is the least, at the end of the third
    assert slow.state is HoldState.RESERVED
    fast.release()
    fast.release()
    assert fast.state is HoldState.RELEASED
    assert swept(wal) == first[4]
    assert [version for version, _ in contents(wal)] == list(range(first[4], wal.durable + 1))


def test_a_hold_that_ordinary_retention_covers_is_reserved_whatever_its_cap():
    """F45, F47: caps limit what is kept beyond ordinary retention."""
    wal, first = log_of(4, retain_bytes=None)
    hold = wal.retention.holds.add("one", Position(first[0]), keep_bytes=0)
    assert swept(wal) == first[0]
    assert hold.state is HoldState.RESERVED
    (told,) = wal.retention.statistics()
    assert (told.state, told.held_bytes, told.bytes_left) == (HoldState.RESERVED, wal.bytes, 0)


def test_above_its_cap_a_hold_is_unreserved_for_one_pass_and_then_lost():
    """F47: the space is freed, the owner is told once, and nothing is held again."""
    wal, first = log_of(3)
    told = []
    hold = wal.retention.holds.add(
        "one", Position(first[0]), keep_bytes=wal.bytes + 1000, on_lost=told.append
    )
    assert swept(wal) == first[0]
    assert hold.state is HoldState.EXTENDED
    (before,) = wal.retention.statistics()
    assert 0 < before.bytes_left <= 1000
    fill_segments(wal, 4)
    assert not wal.retention.step(None)  # a last pass in which it is kept
    assert hold.state is HoldState.UNRESERVED
    assert wal.reader.oldest == first[0]
    assert told == []
    assert wal.retention.step(None)
    assert (hold.state, told) == (HoldState.LOST, [hold])
    assert wal.reader.oldest > first[0]
    assert hold.oldest == Position(wal.reader.oldest)
    names = filesystem_of(wal.retention).listing(LOG)
    assert segment_name(1) not in names
    for position in (Position(first[0]), Position(wal.durable)):
        with pytest.raises(HistoryPruned) as caught:
            hold.move(position)
        assert caught.value.oldest == hold.oldest
    (after,) = wal.retention.statistics()
    assert (after.state, after.held_bytes, after.bytes_left) == (HoldState.LOST, 0, None)
    swept(wal)
    assert told == [hold]
    hold.release()
    assert hold.state is HoldState.LOST
    assert wal.retention.statistics() == ()


def test_who_moves_on_in_time_is_not_lost():
    """F47: unreserved is a warning."""
    wal, first = log_of(3)
    hold = wal.retention.holds.add("one", Position(first[0]), keep_bytes=1)
    wal.retention.step(None)
    assert hold.state is HoldState.UNRESERVED
    assert wal.retention.statistics()[0].state is HoldState.UNRESERVED
    hold.move(Position(first[2]))
    assert wal.retention.step(None)
    assert hold.state is HoldState.RESERVED
    assert wal.reader.oldest == first[2]


def test_a_hold_is_lost_by_age_too():
    """F47: the age of a segment is that of its end."""
    clock = Clock()
    wal, first = log_of(3, clock)
    hold = wal.retention.holds.add("one", Position(first[0]), keep_age=10.0)
    clock.now += 9 * SECOND
    swept(wal)
    assert hold.state is HoldState.EXTENDED
    assert 0 < wal.retention.statistics()[0].seconds_left <= 1.0
    clock.now += 2 * SECOND
    swept(wal)
    assert hold.state is HoldState.UNRESERVED
    assert wal.retention.statistics()[0].seconds_left == 0.0
    swept(wal)
    assert hold.state is HoldState.LOST
    assert wal.reader.oldest == first[2]


def test_a_place_in_the_segment_that_is_written_is_never_lost():
    """F45, F47."""
    clock = Clock()
    wal, first = log_of(2, clock)
    hold = wal.retention.holds.add("one", Position(first[1]), keep_bytes=0, keep_age=0.0)
    clock.now += 10**12
    swept(wal)
    swept(wal)
    assert hold.state is HoldState.RESERVED
    assert wal.retention.statistics()[0].seconds_left is None


def test_what_is_gone_cannot_be_held_and_names_are_unique():
    """F45, E37."""
    wal, first = log_of(3)
    swept(wal)
    holds = wal.retention.holds
    with pytest.raises(HistoryPruned) as caught:
        holds.add("late", Position(first[0]))
    assert caught.value.oldest == Position(first[2])
    hold = holds.add("one", Position(first[2], 7))
    with pytest.raises(InvalidOption, match="name"):
        holds.add("one", Position(first[2]))
    with pytest.raises(HistoryPruned):
        hold.move(Position(first[2] - 1))
    assert hold.position == Position(first[2], 7)
    hold.release()
    with pytest.raises(InvalidOption, match="released"):
        hold.move(Position(first[2]))
    holds.add("one", Position(first[2]))


def test_owners_make_their_places_durable_before_anything_is_deleted():
    """F45, F126: while one of them cannot, nothing is deleted; then in the order that no crash turns into a gap."""
    system = SimulatedFileSystem(trace=True)
    wal = opened(system, options(**KEEP))
    fill_segments(wal, 3)
    swept(wal)  # indexes and spares are made
    fill_segments(wal, 3)
    oldest = wal.reader.oldest
    events = []

    def sync():
        events.append(("synced", segment_name(catalog_of(wal).entries[0].number) in system.listing(LOG)))
        if len(events) < 3:
            raise OSError("no")

    wal.retention.holds.add("one", Position(wal.durable), sync=sync)
    for _ in range(2):
        wal.retention.step(None)
        assert wal.reader.oldest == oldest
    system.trace.clear()
    assert wal.retention.step(None)
    assert events == [("synced", True)] * 3
    assert wal.reader.oldest > oldest
    done = [
        line for line in system.trace if any(word in line for word in ("HEAD", "unlink", "sync_directory"))
    ]
    places = [
        next(n for n, line in enumerate(done) if word in line) for word in ("HEAD", "unlink", "directory")
    ]
    assert places == sorted(places), done
    wal.retention.step(None)
    assert len(events) == 3, "nothing is deleted, so nobody is asked"


def test_an_owner_who_cannot_be_told_keeps_nobody_else_from_it():
    """F47."""
    wal, first = log_of(3)
    told = []

    def fails(hold):
        told.append(hold.name)
        raise RuntimeError("no")

    for name in ("one", "two"):
        wal.retention.holds.add(name, Position(first[0]), keep_bytes=0, on_lost=fails)
    wal.retention.step(None)
    wal.retention.step(None)
    assert told == ["one", "two"]


# --- a model -----------------------------------------------------------------------------------------------------------


class Files:
    """The files of a retention, which only counts what is deleted."""

    def __init__(self):
        self.gone = []

    def unlink(self, path):
        if path.suffix == ".log":
            self.gone.append(path.name)
        else:
            raise FileNotFoundError

    @contextlib.contextmanager
    def opened_directory(self, path):
        yield lambda: None


class Modelled:
    """A retention over segments that are made up, beside the rules in plain words."""

    def __init__(self, settings):
        self.settings = settings
        self.now = 1000 * SECOND
        self.files = Files()
        self.catalog = Catalog(self.files, LOG, None)
        self.sizes = {}
        self.version = 1
        self.grow(1, 1)
        self.retention = Retention(
            self.catalog,
            lambda: (self.last.number, self.sizes[self.last.number]),
            lambda oldest: None,
            settings,
            self.files,
            LOG,
            Ages(SimpleNamespace(now_us=lambda: self.now, monotonic=lambda: self.now / SECOND)),
        )
        self.holds = {}

    @property
    def last(self):
        return self.catalog.entries[-1]

    def grow(self, versions, size):
        if self.catalog.entries:
            self.version += versions
            self.catalog.ended(self.last.number, self.sizes[self.last.number])
        number = len(self.sizes) + 1
        self.sizes[number] = size
        self.catalog.add(SegmentEntry(number, self.version, self.now, self.now / SECOND))

    def segment(self, version):
        return max(entry.number for entry in self.catalog.entries if entry.first_version <= version)

    def expendable(self, number):
        """Whether ordinary retention may take a segment, once all before it are gone."""
        entries = self.catalog.entries
        if number == self.last.number:
            return False
        nbytes = sum(self.sizes[entry.number] for entry in entries if entry.number >= number)
        closed = next(entry.created_at for entry in entries if entry.number == number + 1)
        most, age = self.settings.retain_bytes, self.settings.retain_age
        return (most is not None and nbytes > most) or (age is not None and self.now - closed > age * SECOND)

    def kept(self):
        return next(entry.number for entry in self.catalog.entries if not self.expendable(entry.number))

    def above(self, hold):
        number = self.segment(hold.position.version)
        if number >= self.kept():
            return False
        nbytes = sum(self.sizes[entry.number] for entry in self.catalog.entries if entry.number >= number)
        closed = next(entry.created_at for entry in self.catalog.entries if entry.number == number + 1)
        return (hold.keep_bytes is not None and nbytes > hold.keep_bytes) or (
            hold.keep_age is not None and self.now - closed > hold.keep_age * SECOND
        )

    def sweep(self):
        """A pass, and what must come of it."""
        before = self.catalog.entries
        expected, floors = {}, []
        for name, hold in self.holds.items():
            if hold.state is HoldState.LOST:
                expected[name] = HoldState.LOST
                continue
            above = self.above(hold)
            if above and hold.state is HoldState.UNRESERVED:
                expected[name] = HoldState.LOST
                continue
            floors.append(self.segment(hold.position.version))
            reserved = floors[-1] >= self.kept()
            expected[name] = (
                HoldState.RESERVED if reserved else HoldState.UNRESERVED if above else HoldState.EXTENDED
            )
        oldest = min([self.kept(), *floors])
        self.retention.step(None)
        assert self.catalog.entries[0].number == oldest
        assert self.files.gone == [segment_name(number) for number in range(1, oldest)]
        assert {name: hold.state for name, hold in self.holds.items()} == expected
        for name, hold in self.holds.items():
            if hold.state is not HoldState.LOST:
                assert hold.position.version >= self.catalog.entries[0].first_version, name
        assert len(before) >= len(self.catalog.entries)


CAP = st.one_of(st.none(), st.integers(0, 300))


@given(CAP, st.one_of(st.none(), st.integers(0, 20)), st.data())
@settings(max_examples=scaled(200))
def test_every_rule_alone_and_together_does_what_the_model_says(most, age, data):
    """F45, F47: size, age and holds with caps; never below a live hold within its caps."""
    world = Modelled(options(retain_bytes=most, retain_age=age))
    draw = data.draw
    for step in range(draw(st.integers(1, 25))):
        action = draw(
            st.sampled_from(["grow", "grow", "grow", "wait", "hold", "move", "release", "sweep", "sweep"])
        )
        if action == "grow":
            world.grow(draw(st.integers(1, 5)), draw(st.integers(1, 80)))
        elif action == "wait":
            world.now += draw(st.integers(1, 10)) * SECOND
        elif action == "hold":
            low = world.catalog.entries[0].first_version
            world.holds[step] = world.retention.holds.add(
                str(step),
                Position(draw(st.integers(low, world.version))),
                keep_bytes=draw(CAP),
                keep_age=draw(st.one_of(st.none(), st.integers(0, 20))),
            )
        elif world.holds and action in ("move", "release"):
            name = draw(st.sampled_from(sorted(world.holds)))
            hold = world.holds[name]
            if action == "release":
                hold.release()
                del world.holds[name]
            elif hold.state is HoldState.LOST:
                with pytest.raises(HistoryPruned):
                    hold.move(Position(world.version))
            else:
                hold.move(Position(draw(st.integers(hold.position.version, world.version))))
        elif action == "sweep":
            world.sweep()
    world.sweep()


def test_housekeeping_asks_the_holds(tmp_path):
    """F45: with the ordinary housekeeping of a real log, beside what nobody was shown yet."""
    wal, first = log_of(4)
    wal.retention.holds.add("one", Position(first[2]))
    assert wal.maintain(first[1])
    swept_to = wal.reader.oldest
    assert swept_to == first[1]
    assert swept(wal) == first[2]
    commit(wal, b"more")


def test_a_hold_tells_its_name_its_state_and_its_place():
    """F47: where it stands in a message."""
    wal, _ = log_of(1)
    hold = wal.retention.holds.add("slow", Position(3))
    assert repr(hold) == f"<Hold 'slow' {hold.state.value} at {Position(3)}>"
