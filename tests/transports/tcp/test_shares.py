"""What each payer takes of the processor, and who has to wait for it."""

import asyncio

import pytest

from transports.tcp.shares import Charged, Shares, address_of


class Time:
    """A clock that is set."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def now_us(self):
        return round(self.now * 1e6)


def spent(time, **seconds):
    shares = Shares(time)
    for payer, taken in seconds.items():
        shares.spend(payer, taken)
    return shares


def test_what_was_taken_fades_and_is_forgotten():
    time = Time()
    shares = spent(time, eve=1.0, ann=0.5)
    assert (shares.lately("eve"), shares.lately("ann"), shares.lately("ben")) == (1.0, 0.5, 0.0)
    time.now += 1.0
    assert shares.lately("eve") == pytest.approx(0.368, abs=0.001)
    shares.spend("ann", 0.5)
    assert shares.lately("ann") == pytest.approx(0.684, abs=0.001)
    time.now += 100.0  # in which it was counted anew
    shares.spend("ann", 1.0)
    shares.spend("ann", 0.0)
    assert (len(shares), shares.lately("ann")) == (1, pytest.approx(1.0, abs=1e-6))
    time.now += 1e6
    assert shares.lately("ann") == pytest.approx(0.0)
    shares.spend("ben", 1.0)
    assert (len(shares), shares.lately("ben"), shares.taken) == (1, 1.0, 4.0)


def test_a_payer_is_beyond_its_share_only_beside_others():
    """F147: a client that is alone has all that there is."""
    time = Time()
    alone = spent(time, eve=9.0)
    assert not alone.beyond("eve", 0.1)
    shares = spent(time, eve=9.0, ann=0.06)
    assert shares.beyond("eve", 0.1)
    assert not shares.beyond("ann", 0.1)
    assert not shares.beyond("eve", 10.0)


def test_it_owes_only_while_loops_are_late():
    time = Time()
    shares = spent(time, eve=0.2, ann=0.06)
    assert shares.owed("eve", 0.1) == 0.0
    shares.note(1.0)
    assert shares.late == 0.25
    owed = shares.owed("eve", 0.1)
    assert owed == pytest.approx(0.693, abs=0.01)
    assert shares.owed("ann", 0.1) == shares.owed("ben", 0.1) == 0.0
    for _ in range(20):
        shares.note(0.0)
    assert shares.owed("eve", 0.1) == 0.0
    shares.note(1.0)
    time.now += max(owed, 1.0) + 0.01  # what was said of loops then says nothing now
    assert shares.late == 0.0
    shares.note(9.0)
    assert shares.owed("eve", 0.1) == 0.0


async def test_a_loop_that_runs_late_is_seen_and_looked_at_now_and_then(until):
    time = Time()
    shares, loop = Shares(time), asyncio.get_running_loop()
    shares.look(loop)
    shares.look(loop)
    time.now += 0.5
    await until(lambda: shares.late)
    assert shares.late == 0.125


async def test_the_steps_of_a_coroutine_are_charged_to_whoever_pays_then():
    """What it waits for, what it returns and what it raises are its own business."""
    shares, payers = Shares(), iter("abcdefgh")

    async def work():
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        return 7

    assert await Charged(work(), lambda: next(payers), shares) == 7
    assert 0 < shares.taken < 60
    assert next(payers) == "e"

    async def fail():
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await Charged(fail(), lambda: "x", shares)


def test_work_is_charged_also_if_it_fails():
    shares = Shares()
    assert shares.charged("a", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        shares.charged("b", lambda: 1 // 0)
    assert shares.taken > 0
    shares.forked(0)
    shares.spend("a", 1.0)
    assert len(shares) == 1


def test_those_who_take_most_are_named_for_operators():
    time = Time()
    shares = spent(time, eve=1.0, ann=0.5, ben=0.25)
    shares.spend(("10.0.0.1",), 0.75)
    assert shares.most(3) == {"eve": 1.0, "10.0.0.1": 0.75, "ann": 0.5}
    assert list(shares.most(9)) == ["eve", "10.0.0.1", "ann", "ben"]
    time.now += 1.0
    assert shares.most(1) == {"eve": 0.3679}


def test_an_address_is_no_name():
    class Peer(asyncio.BaseTransport):
        def get_extra_info(self, name, default=None):
            return self._extra.get(name, default)

    assert address_of(Peer({"peername": ("10.0.0.1", 7)})) == ("10.0.0.1",)
    assert address_of(Peer({})) == (None,)
