"""Leases of slots on a server: what clients, their connections, the grace period and the end do at once, and the threads that open and close."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from penstock_cdc.errors import Fenced, SlotBusy
from penstock_cdc.types import SlotState
from publishers import ChangeLog, Criterion
from publishers.errors import LogClosed, PenstockError
from tests.harness.scale import scaled
from tests.interleaving.disk import Disk, Time
from tests.interleaving.exploring import explore
from tests.interleaving.primitives import monotonic
from tests.interleaving.scheduler import Scheduler
from tests.publishers.support import QUICK
from transports import Limits, Principal
from transports.codec.slots import SlotRequest
from transports.errors import GoingAway
from transports.limits import half
from transports.quotas.pool import Pools
from transports.server.slot_leases import SlotLease, SlotLeases, TooManySlots

LINES = ("server/leases.py", "quotas/pool.py")
NAMES = ["one", "two", "three", "four"]
LIMITS = Limits(slot_leases=4, grace=0.02, scan_threads=4)
FEW = Limits(slot_leases=2, grace=10.0, scan_threads=4)
ANN, BOB, EVE = Principal("ann"), Principal("bob"), Principal("eve")


class Loop(asyncio.SelectorEventLoop):
    """An event loop that turns when its thread says so, by the clock of the run."""

    def time(self) -> float:
        return monotonic()

    @property
    def ready(self) -> bool:
        """Whether a turn would run something."""
        return bool(self._ready)

    @property
    def patience(self) -> float | None:
        """Seconds to its next timer."""
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]
        return max(0.0, min(timers) - self.time()) if timers else None

    def turn(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()


class Client:
    """One connection that asks for a slot; notes what it is told."""

    def __init__(self, case: "Case", principal: Principal, request: SlotRequest) -> None:
        self.case, self.principal, self.request = case, principal, request
        self.lease: SlotLease | None = None
        self.answers = self.fencings = 0
        self.left = False
        self.error: PenstockError | None = None

    def opens(self) -> "Client":
        """Asks, and waits for the answer."""
        case = self.case
        case.loop.call_soon_threadsafe(self._take)
        case.run.until(lambda: self.answers, "the answer")
        return self

    def leaves(self, *, lost: bool) -> None:
        case = self.case
        case.loop.call_soon_threadsafe(self._leave, lost)
        case.run.until(lambda: self.left, "it has left")

    # On the loop.

    def _take(self) -> None:
        log, leases = self.case.log, self.case.leases
        leases.take(log, self.request, self.principal, self, client=self, then=self._told)

    def _told(self, lease: Callable[[], SlotLease]) -> None:
        self.answers += 1
        try:
            self.lease = lease()
        except PenstockError as error:
            self.error = error
        else:
            assert (self.lease.holder, self.lease.opening.principal) == (self, self.principal.name)
            self.case.given.append(self)
            if not self.case.closed:
                assert self.lease.held in self.case.leases._open, "what a client gets is open"

    def _leave(self, lost: bool) -> None:
        if self.lease is not None:
            self.case.leases.leave(self.lease, self, lost=lost)
            self.case.leases.leave(self.lease, self, lost=lost)  # as a connection that ends twice
            assert lost or self.fencings or self.lease.timer is None
        self.left = True

    def fenced(self, error: Fenced) -> None:
        assert isinstance(error, Fenced)
        assert not self.left
        self.fencings += 1


class Case:
    """A log with slots, and the leases of a server."""

    def __init__(self, run: Scheduler, limits: Limits = LIMITS) -> None:
        self.run, self.limits = run, limits
        self.log = ChangeLog.open("/log", filesystem=Disk(), clock=Time(), **QUICK)
        for name in NAMES:
            self.log.slots.create(name, Criterion(), since="earliest")
        self.loop = Loop()
        self.pools = Pools(limits)
        self.leases = SlotLeases(limits, self.pools)
        self.over = 0
        self.closed = self.ending = False
        self.clients: list[Client] = []
        self.given: list[Client] = []

    def client(self, name: str, principal: Principal = ANN, **how: object) -> Client:
        self.clients.append(Client(self, principal, SlotRequest(name, **how)))
        return self.clients[-1]

    # The kinds of entries.

    def resumes(self) -> None:
        """A client loses its connection and comes back, by the id of its opening and then by the generation; then it ends."""
        self.client("one", opening="a").opens().leaves(lost=True)
        again = self.client("one", opening="a").opens()
        again.leaves(lost=True)
        generation = None if again.lease is None else again.lease.held.generation
        self.client("one", generation=generation).opens().leaves(lost=False)

    def takes_over(self) -> None:
        self.client("one", BOB, take_over=True, opening="b").opens()
        self.client("one", BOB, take_over=True).opens().leaves(lost=True)

    def comes_twice(self) -> None:
        """A client whose old connection has not ended yet; the new one stays."""
        first = self.client("two", opening="c").opens()
        second = self.client("two", opening="c").opens()
        assert first.lease is None or first.lease is not second.lease or first.fencings == 1
        first.leaves(lost=True)

    def stays(self) -> None:
        """A client that comes back in time is not released when that time is over."""
        self.client("four", opening="d").opens().leaves(lost=True)
        self.client("four", opening="d").opens()

    def wants(self) -> None:
        """Without taking over: while another one has it open, it is refused."""
        self.client("two", BOB, opening="c").opens().leaves(lost=False)

    def crowds(self) -> None:
        """As many as there may be, and more; those that are away make room."""
        for name in NAMES[2:]:
            self.client(name, opening=name).opens().leaves(lost=True)
        self.client("three", BOB).opens()

    def fails(self) -> None:
        self.client("none", BOB).opens().leaves(lost=False)

    def looks(self) -> None:
        for _ in range(2):
            figures = self.leases.figures()
            assert min(figures.values()) >= 0
            assert sum(figures.values()) <= self.limits.slot_leases

    def leaves_two(self) -> None:
        """Two clients of one principal are away, and make room for others."""
        for name in NAMES[:2]:
            self.client(name).opens().leaves(lost=True)

    def opens_another(self) -> None:
        self.client("three", EVE).opens()

    def comes_back(self) -> None:
        """What a client has closed is free for its next opening, although threads close and open."""
        for _ in range(2):
            client = self.client("one").opens()
            assert client.error is None
            client.leaves(lost=False)

    def closes(self) -> None:
        self.loop.call_soon_threadsafe(self._close)
        self.run.until(lambda: self.closed, "the leases close")
        self.pools.close()

    def closes_the_log(self) -> None:
        self.log.close()

    def _close(self) -> None:
        self.closed = True
        self.leases.close()

    # The rest.

    def turns(self, bodies: int) -> None:
        """The thread of the event loop: until all have what they want, no work is left, and the grace periods are over."""

        def busy() -> bool:
            return self.over < bodies or bool(self.leases._tasks) or self.loop.patience is not None

        while busy() or self.loop.ready:
            self.run.until(lambda: self.loop.ready or not busy(), "the loop waits", self.loop.patience)
            self.loop.turn()
            self.check_counts()

    def check_counts(self) -> None:
        leases = self.leases
        if not self.closed:
            counts = Counter(lease.opening.principal for lease in leases._leases.values())
            assert len(leases) <= self.limits.slot_leases
            assert max(counts.values(), default=0) <= half(self.limits.slot_leases)

    def check(self) -> None:
        leases = self.leases
        assert all(one.answers == 1 for one in self.clients)
        refusals = {type(one.error) for one in self.clients if one.error is not None}
        allowed = {SlotBusy, Fenced, TooManySlots} | ({GoingAway, LogClosed} if self.ending else set())
        assert {kind for kind in refusals if kind.__name__ != "NoSuchSlot"} <= allowed, refusals
        assert (leases._tasks, leases._turns, leases._opening) == (set(), {}, {})
        if not self.closed:
            holding = {lease.holder: lease for lease in leases._leases.values()}
            assert None not in holding, "the grace period of those that are away is over"
            for one in self.given:
                assert (holding.get(one) is one.lease) is (not one.left and not one.fencings)
                assert one.fencings <= 1
            held = {lease.held.name for lease in leases._leases.values()}
            assert {lease.held for lease in leases._leases.values()} == leases._open
            if not self.ending:
                served = {name for name in NAMES if self.log.slots.info(name).state is SlotState.SERVED}
                assert served == held
            self._close()
        assert leases._open == set()
        if not self.ending:
            assert all(self.log.slots.info(name).state is SlotState.FREE for name in NAMES)


KINDS = [
    Case.resumes,
    Case.takes_over,
    Case.comes_twice,
    Case.stays,
    Case.wants,
    Case.crowds,
    Case.fails,
    Case.looks,
]
ENDS = {"open": (), "closing": (Case.closes,), "log": (Case.closes_the_log, Case.closes)}


def leases(end: str) -> Callable[[Scheduler], None]:
    return scenario_of(end, [*KINDS, *ENDS[end]], ending=bool(ENDS[end]))


def scenario_of(
    name: str, kinds: list[Callable[[Case], None]], limits: Limits = LIMITS, *, ending: bool = False
) -> Callable[[Scheduler], None]:
    def scenario(run: Scheduler) -> None:
        case = Case(run, limits)
        case.ending = ending

        def act(kind: Callable[[Case], None]) -> Callable[[], None]:
            def body() -> None:
                try:
                    kind(case)
                finally:
                    case.over += 1

            body.__name__ = kind.__name__
            return body

        def turns() -> None:
            case.turns(len(kinds))

        try:
            run.together(turns, *map(act, kinds))
            case.check()
        finally:
            case.loop.close()
        case.pools.close()
        case.log.close()

    scenario.__name__ = name
    return scenario


comes_back = scenario_of("comes_back", [Case.comes_back, Case.looks])
makes_room = scenario_of(
    "makes_room", [Case.leaves_two, Case.takes_over, Case.opens_another, Case.looks], FEW
)


@pytest.mark.parametrize("end", ENDS)
def test_a_slot_is_open_for_one_client_at_a_time_and_free_behind_the_last_one(end):
    """F74: whoever loses its connection, comes back, takes over, is refused, waits for room, or is there at the end."""
    explore(leases(end), preemptions=2, most=scaled(10), walks=scaled(20))
    explore(leases(end), most=0, walks=scaled(2), files=LINES)


@pytest.mark.parametrize("scenario", [makes_room, comes_back])
def test_a_lease_that_is_being_taken_over_makes_no_room_and_one_that_is_closed_does(scenario):
    """F74: else there would be more than the bound, once it is taken over; or a client would be refused for itself."""
    explore(scenario, preemptions=2, most=scaled(20), walks=scaled(10))
