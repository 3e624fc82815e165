"""Interrupts while subscriptions are served together."""

import contextlib

import pytest

from publishers.fanout.group import DeliveryGroup
from publishers.fanout.ring import Ring
from tests.harness.inside import lock_of
from tests.publishers.fanout.test_group import company, once
from tests.publishers.support import (
    BatchProbe,
    ManualExecutor,
    Probe,
    SteppedLoop,
    everything,
    fill,
    opened,
)


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt."""


def _strike():
    raise Interrupt


class StrikingLock:
    """The lock of a group, which it has back after the first attempt to take it was interrupted."""

    def __init__(self, group):
        self._group, self._lock = group, group._lock

    def __enter__(self):
        self._group._lock = self._lock
        raise Interrupt

    def __exit__(self, *_): ...


@pytest.mark.parametrize("kind", [Probe, BatchProbe])
@pytest.mark.parametrize("after", [False, True], ids=["before the cursors are moved", "after they were"])
def test_an_interrupt_inside_a_round_keeps_nobodys_flag_and_nobodys_changes(monkeypatch, kind, after):
    """F37: it goes on to whoever turns the loop; the company is whole at the next turn, without a further commit."""
    with opened() as log:
        loop = SteppedLoop()
        probes = company(log, 3, kind=kind, executor=loop)
        fill(log, 1)
        loop.run_all()
        once(monkeypatch, Ring, "take", _strike, after=after)
        fill(log, 1)
        with pytest.raises(Interrupt):
            loop.run_all()
        loop.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()
        fill(log, 1)
        loop.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()
            assert probe.clean
            assert not probe.terminals


def test_an_interrupt_before_a_round_knows_whom_to_serve_is_followed_by_another_round():
    """F37: else the company would wait for ever for the one that was scheduled."""
    with opened() as log:
        loop = SteppedLoop()
        probes = company(log, 3, executor=loop)
        fill(log, 1)
        loop.run_all()
        fill(log, 1)
        group = probes[0].subscription.cursor.group
        lock = lock_of(group)
        group._lock = StrikingLock(group)
        with pytest.raises(Interrupt):
            loop.run_all()
        assert lock_of(group) is lock
        loop.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()
        fill(log, 1)
        loop.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()


def test_an_interrupt_when_a_round_was_claimed_and_not_yet_scheduled_loses_it_for_nobody(monkeypatch):
    """F37: the commit stands, and the company is served without a further one."""
    with opened() as log:
        loop = SteppedLoop()
        probes = company(log, 3, executor=loop)
        fill(log, 1)
        loop.run_all()
        once(monkeypatch, DeliveryGroup, "_claim", _strike)
        with contextlib.suppress(Interrupt):
            fill(log, 1)
        assert log.visible == 2
        loop.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()
            assert len(probe.positions) == 4


@pytest.mark.parametrize("point", ["claimed", "found"])
def test_an_interrupt_while_those_of_a_pool_are_woken_leaves_nobody_asleep(monkeypatch, point):
    """F37: to be woken twice is harmless."""
    with opened() as log:
        pool = ManualExecutor()
        probes = company(log, 3, executor=pool)
        pool.run_all()
        group = probes[0].subscription.cursor.group
        group.wake()  # for nothing
        assert not pool.run_all()
        if point == "found":
            once(monkeypatch, Ring, "standing", _strike, after=False)
            with contextlib.suppress(Interrupt):
                fill(log, 1)
        else:
            fill(log, 1)
            group._lock = StrikingLock(group)
            with pytest.raises(Interrupt):
                group.wake()
        pool.run_all()
        for probe in probes:
            assert probe.positions == everything(log), probe.state()
            assert probe.clean
