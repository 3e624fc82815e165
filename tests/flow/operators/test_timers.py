import threading

from flow import operators as op
from tests.flow.operators.helpers import ManualTimers
from tests.flow.probes import wait_until


def test_alarms_ring_in_the_order_of_their_moments():
    clock = ManualTimers()
    timers = op.ThreadTimers(clock)
    rung, may_ring, last = [], threading.Event(), threading.Event()
    timers.after(0, lambda: may_ring.wait(60))
    timers.after(3, lambda: (rung.append("c"), last.set()))
    timers.after(1, lambda: rung.append("a"))
    timers.after(2, lambda: rung.append("b"))
    clock.advance(3)
    may_ring.set()
    assert last.wait(60)
    assert rung == ["a", "b", "c"]


def test_the_thread_exists_only_while_an_alarm_is_set():
    timers = op.ThreadTimers()
    for _ in range(3):
        rung = threading.Event()
        timers.after(0.001, rung.set)
        assert rung.wait(60)
        wait_until(lambda: not timers._serving)
    assert len(timers) == 0


def test_alarms_that_were_called_off_do_not_ring_and_are_forgotten():
    timers = op.ThreadTimers()
    rung = []
    alarms = [timers.after(3600, lambda: rung.append(1)) for _ in range(1000)]
    for alarm in alarms[1:]:
        alarm.cancel()
        alarm.cancel()
    assert len(timers) <= 2
    alarms[0].cancel()
    wait_until(lambda: not timers._serving)
    assert rung == []


def test_a_task_that_raises_does_not_stop_the_others(dropped, caplog):
    timers = op.ThreadTimers()
    rung = threading.Event()

    def leave():
        raise SystemExit

    timers.after(0.001, lambda: 1 // 0)
    timers.after(0.002, leave)
    timers.after(0.003, rung.set)
    assert rung.wait(60)
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]
    assert "dropped by the thread of the timers" in caplog.text
