"""Turns of connections that have more to do than one run of an event loop may take."""

import asyncio
from functools import partial

from flow.executors import loop_executor
from tests.transports.tcp.test_shares import Time, spent
from transports.tcp.shares import Shares
from transports.tcp.turns import Turns, turns_of


async def test_each_run_of_a_loop_has_one_turn_and_payers_alternate():
    """F147: whoever has one message to send waits behind one turn of all who never run dry."""
    turns, gone = Turns(asyncio.get_running_loop(), Shares()), []

    def go_on(name, payer):
        gone.append(name)
        turns.later(payer, 0.1, partial(go_on, name, payer))

    for number in range(20):
        turns.later("many", 0.1, partial(go_on, f"many {number}", "many"))
    turns.later("few", 0.1, partial(go_on, "few", "few"))
    runs = 0
    while len(gone) < 40:
        before = len(gone)
        await asyncio.sleep(0)
        runs += 1
        assert len(gone) - before <= 1
    assert runs <= 41
    assert [name for name in gone if name == "few"] == ["few"] * 20
    assert gone[::2] == [f"many {number}" for number in range(20)]


async def test_one_that_is_cancelled_or_raises_takes_nobodys_turn(caplog):
    turns = turns_of(asyncio.get_running_loop())
    waiting = [asyncio.create_task(turns.next("ann", 0.1)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.later("ann", 0.1, lambda: 1 // 0)
    last = asyncio.create_task(turns.next("ann", 0.1))
    await asyncio.gather(*waiting, last, return_exceptions=True)
    assert [one.cancelled() for one in waiting] == [False, True, False]
    assert "ZeroDivisionError" in caplog.text
    assert turns is turns_of(asyncio.get_running_loop())


async def test_a_payer_beyond_its_share_has_no_turn_while_loops_are_late(until):
    """F147: on however many connections; everybody else has, and it has one again when they are in time."""
    time = Time()
    shares = spent(time, eve=9.0, ann=0.06)
    turns, gone = Turns(asyncio.get_running_loop(), shares), []
    shares.note(1.0)
    assert [turns.holds(payer, 0.1) for payer in ("eve", "ann", "ben")] == [True, False, False]
    for name in ("eve", "eve", "ann"):
        turns.later(name, 0.1, partial(gone.append, name))
    await until(lambda: gone)
    turns.later("eve", 0.1, partial(gone.append, "eve"))  # behind those that wait
    turns.later("ben", 0.1, partial(gone.append, "ben"))  # while nobody is waiting but eve
    await until(lambda: shares.held > 2)
    assert gone == ["ann", "ben"]
    time.now += 1.5  # nobody has looked meanwhile, so no loop is late
    await until(lambda: len(gone) == 5)
    assert gone[2:] == ["eve"] * 3


async def test_what_logs_have_to_tell_goes_before_a_turn_but_not_for_ever(until):
    """F147: a commit is not told one turn of an attacker later; and a log that always has something to tell takes no turn away."""
    loop = asyncio.get_running_loop()
    turns, executor, gone = Turns(loop, Shares()), loop_executor(loop), []

    def tell(left):
        gone.append("told")
        executor.spend(64)  # nothing more in this run
        if left:
            executor.submit(partial(tell, left - 1))

    for _ in range(3):
        turns.later("eve", 0.1, partial(gone.append, "turn"))
    executor.submit(partial(tell, 20))
    await until(lambda: gone.count("turn") == 3 and not executor.awake)
    first = gone.index("turn")
    assert 8 <= first <= 10
    assert gone.count("told") == 21
    second = gone.index("turn", first + 1)
    assert second - first >= 8


async def test_turns_of_a_loop_that_is_gone_wake_nobody():
    turns = Turns(asyncio.new_event_loop(), Shares())
    turns._loop().close()
    turns._loop = lambda: None
    turns.later("ann", 0.1, lambda: 1 // 0)
    assert not turns.holds("ann", 0.1)
    assert turns._wakes is None
