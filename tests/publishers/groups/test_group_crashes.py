"""A group on a simulated disk: crashes and failures between any two writes of its journal, and what a restart finds."""

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock_cdc.errors import HistoryPruned, PositionError
from publishers import Area, Change, Operation, Position
from publishers.errors import LogFull
from publishers.groups import ConsumerGroups, GroupState
from publishers.groups.errors import ConsumerFenced, GroupExists, GroupUnwritten
from publishers.groups.inspection import stored_groups
from publishers.journal import JOURNAL_NAMES
from publishers.wal.disk.filesystem import put_file, read_file, sync_names
from tests.harness.inside import head_writer_of
from tests.harness.scale import scaled
from tests.publishers.slots.owner import OPTIONS, BareLog
from tests.publishers.wal.logs import opened, sealed
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.workload import LOG, Clock

MOST = 8
PARKED = 12
SAID = st.sampled_from(["ack", "ack", "durable", "nack", "term", "claim"])


class SharedLog(BareLog):
    """See ``publishers.groups.ports.GroupLog``: each version has one change, of one of three keys."""

    def __init__(self, wal, clock):
        super().__init__(wal)
        self.clock = clock
        self.monotonic = clock.monotonic

    def page(self, predicate, since, limit, nbytes, view):
        if since < self.oldest:
            raise HistoryPruned(self.oldest)
        first = since.version + (since.index > 1)
        versions = range(first, self.head.version)
        changes = tuple(
            Change(version, 1, 2, datetime.now(UTC), Area.DATA, Operation.UPSERT, "order", str(version % 3))
            for version in versions[:limit]
        )
        after = Position(versions[limit], 1) if len(versions) > limit else self.head
        return SimpleNamespace(changes=changes, next=after, nbytes=len(changes))

    def listen(self, *_):
        raise AssertionError


class GroupDisk(SimulatedFileSystem):
    """A disk of which the files of groups may fail by themselves, and which is looked at before each change of one."""

    def __init__(self, seed, look):
        super().__init__(seed)
        self.look = look
        self.failing = {}  # what strikes the next changes of files of groups

    def operation(self, what, path, *details):
        if "groups" in path.parts and not self.dead:
            self.look()
        kind = super().operation(what, path, *details)
        if kind is None and "groups" in path.parts:
            left = self.failing
            self.failing = {after - 1: kind for after, kind in left.items() if after}
            kind = left.get(0)
        return kind


class Buried:
    """See ``DeadLog``: a file a letter. Whatever else may happen while a letter is written does so before."""

    def __init__(self, system, meanwhile):
        self.system = system
        self.meanwhile = meanwhile
        self.directory = LOG / "groups" / "g.dead"

    def put(self, key, letter):
        self.meanwhile()
        self.system.make_directory(self.directory)
        try:
            put_file(self.system, self.directory / key, json.dumps(letter).encode())
            sync_names(self.system, self.directory)
        except OSError as error:
            raise LogFull(None, 0) from error

    def letters(self):
        try:
            names = self.system.listing(self.directory)
        except FileNotFoundError:
            return {}
        return {
            name: json.loads(read_file(self.system, self.directory / name))
            for name in names
            if not name.endswith(".tmp")
        }

    def close(self):
        pass


class Crashes(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32), deliver=st.sampled_from([None, 3]), sync=st.sampled_from(["always", "os"])
    )
    def begin(self, seed, deliver, sync):
        self.looking = False
        self.stored = None
        self.system = GroupDisk(seed, self.look)
        self.clock = Clock()
        self.deliver = deliver
        self.log_options = replace(OPTIONS, sync=sync)
        self.dead = Buried(self.system, self.meanwhile)
        self.sure = set()  # acknowledged durably
        self.said = set()  # acknowledged
        self.counted = {}  # how often each was given, if that is kept
        self.generation = 0
        self.floor = Position(1)
        self.open_log()
        self.groups.create("g", since="earliest", **self.options())
        self.stored = []

    def options(self):
        return {
            "max_ack_pending": MOST,
            "max_parked": PARKED,
            "max_deliver": self.deliver,
            "backoff": (0.0,),
            "breaker": False,
        }

    def open_log(self):
        self.stored = None
        self.wal = opened(self.system, self.log_options)
        self.log = SharedLog(self.wal, self.clock)
        self.groups = ConsumerGroups(
            self.log,
            self.system,
            LOG,
            self.wal.log_id,
            self.log_options,
            self.wal.insist,
            lambda _: self.dead,
        )
        self.groups.load()
        self.members = []

    def attempt(self, action):
        """Does something; a power cut on the way is followed by a restart. Answers whether it was done."""
        try:
            self.result = action()
        except PowerCut:
            self.system.power_cut()
            self.reopen(cut=True)
            return False
        except (GroupUnwritten, LogFull):
            return False
        return True

    def meanwhile(self):
        """The housekeeping comes between."""
        with contextlib.suppress(GroupUnwritten):
            self.groups.open("g").book.flush()

    def look(self):
        """What the disk has of the group is enough for a crash at this moment."""
        if self.looking or self.stored is None:
            return
        self.looking = True
        try:
            found = [read_file(self.system, LOG / "groups" / "g" / name) for name in JOURNAL_NAMES]
            if found != self.stored:
                self.stored = found
                (self.row,) = stored_groups(self.system, LOG, self.wal.log_id, self.log.judge)
                head, opens = self.row.head, {row.position for row in self.row.record.opens}
                vouched = head_writer_of(self.wal).head.state.durable
                assert head <= Position(vouched + 1), "a place for which HEAD does not vouch"
                done = {Position(version, 1) for version in range(1, head.version + (head.index > 1))} - opens
                assert done <= self.said | self.buried(), "something that was never acknowledged is done"
            for hold in self.log.holds():
                assert hold.position <= self.row.floor, "history is let go that the journal needs"
        finally:
            self.looking = False

    def buried(self):
        """The positions of letters of this history; under ``sync="os"`` there may be some of versions that a power cut took."""
        found = set()
        for key, letter in self.dead.letters().items():
            place = Position(*map(int, key.split(":")))
            try:
                self.log.judge(letter["cursor"])
            except HistoryPruned:
                pass
            except PositionError:
                continue
            found.add(place)
        return found

    def reopen(self, *, cut):
        self.system.faults.clear()
        self.system.failing.clear()
        self.open_log()
        self.stored = []
        assert list(self.groups) == ["g"]
        group = self.groups.open("g")
        told = group.info()
        assert told.state is GroupState.SERVING
        assert told.generation >= self.generation
        book = group.book
        not_done = {row.position for row in book.machine.opens()} | {
            Position(version, 1)
            for version in range(book.machine.head.version, self.log.head.version)
            if Position(version, 1) >= book.machine.head
        }
        assert not self.sure & not_done, "something acknowledged durably comes again"
        written = {Position(version, 1) for version in range(1, self.log.head.version)}
        done = written - not_done
        assert done <= self.said | self.buried(), "something that was never acknowledged is done"
        self.said = done
        self.counted = {place: count for place, count in self.counted.items() if place in written}
        self.floor = told.floor
        if cut:
            self.sure = set(done)
        for row in book.machine.opens():
            if self.deliver:
                assert row.count >= self.counted.get(row.position, 0), "a delivery that was counted is not"

    @rule(after=st.integers(1, 10))
    def arm(self, after):
        self.system.faults.clear()
        self.system.faults[self.system.operations + after] = "crash"

    @rule(after=st.integers(0, 6), kind=st.sampled_from(["EIO", "ENOSPC", "crash"]))
    def fail(self, after, kind):
        """A file of the group, or of its dead letters."""
        self.system.failing = {after: kind}

    @rule()
    def die(self):
        """The process alone: the page cache survives it."""
        self.system.kill()
        self.reopen(cut=False)

    @rule(count=st.integers(1, 6))
    def commit(self, count):
        for _ in range(count):
            if not self.attempt(lambda: self.committed(b"body")):
                return

    def committed(self, body):
        """Under ``sync="os"`` a power cut may take it."""
        self.wal.append([sealed(body)])
        if self.log_options.sync == "always":
            self.wal.sync()
        self.wal.publish_tail(self.wal.visible)

    @rule()
    def grow(self):
        for _ in range(4):
            if not self.attempt(lambda: self.committed(b"x" * 30_000)):
                return

    @rule(seconds=st.sampled_from([-50, 0, 1, 40]))
    def settle(self, seconds):
        self.clock.now += seconds * 1_000_000

        def house():
            safe = self.groups.settle()
            while self.wal.maintain(None if safe else 0):
                pass

        self.attempt(house)

    @rule(name=st.sampled_from("ab"))
    def join(self, name):
        if self.attempt(lambda: self.groups.join("g", name)):
            assert self.result.generation > self.generation
            self.generation = self.result.generation
            self.members.append(self.result)

    @rule()
    def again(self):
        try:
            self.groups.create("g")
        except GroupExists:
            return
        raise AssertionError

    @rule(
        name=st.sampled_from("ab"),
        count=st.integers(0, 4),
        most=st.integers(1, 9),
        says=st.lists(st.tuples(SAID, st.integers(1, 3)), max_size=5),
    )
    def work(self, name, count, most, says):
        """What mostly goes on."""
        self.commit(count)
        if all(one.name != name for one in self.members):
            self.join(name)
        if self.members:
            self.read(-1, most, history=False)
        for what, share in says:
            if self.members:
                self.say(-1, share, what)

    @precondition(lambda self: self.members)
    @rule(chosen=st.integers(0, 9), most=st.integers(1, 9), history=st.booleans())
    def read(self, chosen, most, history):
        member = self.members[chosen % len(self.members)]
        try:
            if not self.attempt(lambda: member.read(most, history=history, wait=0)):
                return
        except ConsumerFenced:
            return
        for one in self.result:
            assert one.position not in self.said
            assert self.deliver is None or one.count <= self.deliver
            self.counted[one.position] = one.count

    @precondition(lambda self: self.members)
    @rule(chosen=st.integers(0, 9), share=st.integers(1, 3), what=SAID)
    def say(self, chosen, share, what):
        member = self.members[chosen % len(self.members)]
        had = sorted(member._consumer.pending)[::share]
        if not had:
            return

        def act():
            if what in ("ack", "durable"):
                self.said |= set(had)
                return member.ack(*had, durable=what == "durable")
            if what == "nack":
                return member.nack(had[0])
            if what == "term":
                return member.term(had[0], "bad")
            return member.claim(0.0, had)

        before = set(self.said)
        try:
            if self.attempt(act) and what == "durable":
                self.sure |= self.said
        except ConsumerFenced:
            self.said = before
        if what == "claim":
            for row in self.groups.open("g").pending_rows():
                self.counted[row.position] = (
                    max(row.count, self.counted.get(row.position, 0)) if self.deliver else 0
                )

    @invariant()
    def what_holds(self):
        """5, 7, 8: bounds, the floor, what is held."""
        if not hasattr(self, "groups"):
            return
        told = self.groups.info("g")
        assert told.pending + told.due + told.dying <= MOST
        assert told.parked <= PARKED
        assert told.floor >= self.floor
        self.floor = told.floor
        assert told.floor.version <= self.wal.durable + 1
        (hold,) = self.log.holds()
        assert hold.position <= told.floor
        assert hold.position >= self.log.oldest


TestCrashes = Crashes.TestCase
TestCrashes.__doc__ = """F85, F81, F84, T1: what was acknowledged durably never comes again after any crash, and everything else does."""
TestCrashes.settings = settings(max_examples=scaled(60), stateful_step_count=50, deadline=None)
