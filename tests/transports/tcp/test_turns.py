"""Turns of connections that have more to do than one run of an event loop may take."""

import asyncio
from functools import partial

from transports.tcp.turns import Turns, turns_of


class Peer(asyncio.BaseTransport):
    def get_extra_info(self, name, default=None):
        return ("10.0.0.1" if self._extra else "10.0.0.2", 1) if name == "peername" else default


async def test_each_run_of_a_loop_has_one_turn_and_clients_alternate():
    """F147: whoever has one message to send waits behind one turn of all who never run dry."""
    turns, gone = Turns(asyncio.get_running_loop()), []
    many, few = Peer({"many": 1}), Peer()

    def go_on(name, transport):
        gone.append(name)
        turns.later(transport, partial(go_on, name, transport))

    for number in range(20):
        turns.later(many, partial(go_on, f"many {number}", many))
    turns.later(few, partial(go_on, "few", few))
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
    waiting = [asyncio.create_task(turns.next(None)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.later(None, lambda: 1 // 0)
    last = asyncio.create_task(turns.next(None))
    await asyncio.gather(*waiting, last, return_exceptions=True)
    assert [one.cancelled() for one in waiting] == [False, True, False]
    assert "ZeroDivisionError" in caplog.text
    assert turns is turns_of(asyncio.get_running_loop())
