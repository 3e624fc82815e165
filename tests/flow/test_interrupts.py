"""Sections that Ctrl-C does not come into, whosever handler is in place."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flow import interrupts
from flow.interrupts import SHIELD, Shield
from tests.forking import in_child

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def handler():
    """Python's own handler, and nothing left behind of any other."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def strike():
    signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def handled_by(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def interrupted():
    with pytest.raises(KeyboardInterrupt) as caught:
        yield caught


def test_an_interrupt_in_a_section_comes_when_it_is_left():
    steps = []
    with interrupted():
        with SHIELD:
            strike()
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside"]
    with SHIELD:
        steps.append("again")
    assert steps == ["inside", "again"]


def test_nested_sections_count():
    steps = []
    with interrupted():
        with SHIELD:
            with SHIELD:
                strike()
            steps.append("between")
        steps.append("behind")
    assert steps == ["between"]


def test_a_section_that_raises_is_left_as_any_other():
    with interrupted() as caught, SHIELD:
        strike()
        raise LookupError
    assert isinstance(caught.value.__context__, LookupError)
    with pytest.raises(LookupError), SHIELD:
        raise LookupError


def test_a_second_interrupt_is_passed_on_as_well():
    """As asyncio wants it: the first cancels, the second raises."""
    told = []

    def handle(number, frame):
        told.append((number, frame is not None))

    with handled_by(handle):
        with SHIELD:
            strike()
            strike()
            assert not told
        assert told == [(signal.SIGINT, True)] * 2


def test_a_section_that_lasts_keeps_no_interrupt_waiting(monkeypatch):
    steps = []
    now = [0.0]
    monkeypatch.setattr(interrupts, "monotonic", lambda: now[0])
    with interrupted(), SHIELD:
        strike()
        steps.append("noted")
        now[0] += 2 * interrupts.LONGEST
        strike()
        steps.append("not reached")
    assert steps == ["noted"]


def test_a_handler_that_returns_lets_a_long_section_go_on(monkeypatch):
    told = []
    now = [0.0]
    monkeypatch.setattr(interrupts, "monotonic", lambda: now[0])
    with handled_by(lambda *_: told.append("told")):
        with SHIELD:
            with SHIELD:
                now[0] += 2 * interrupts.LONGEST
                strike()
                assert told == ["told"]
            strike()
            assert told == ["told", "told"]
        strike()
    assert told == ["told"] * 3


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_is_no_function_stays_in_place(handler):
    with handled_by(handler), SHIELD:
        assert signal.getsignal(signal.SIGINT) is handler


def test_a_worker_thread_changes_nothing():
    found = []

    def work():
        with SHIELD:
            found.append(signal.getsignal(signal.SIGINT))

    with SHIELD:
        there = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        assert signal.getsignal(signal.SIGINT) is there
    assert found == [there]
    assert there is not signal.default_int_handler


def test_the_handler_of_another_signal_may_raise_in_a_section():
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm), SHIELD:
            signal.raise_signal(signal.SIGALRM)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_was_not_put_back_is_put_back_by_the_next_section():
    shield = Shield()
    shield.__enter__()
    shield._depth = 0  # as if another handler had raised right behind the swap
    with interrupted(), shield:
        strike()


def test_a_child_of_fork_begins_anew():
    def child():
        left = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with contextlib.suppress(KeyboardInterrupt):
            with SHIELD:
                strike()
            return False
        return left

    assert in_child(child)
    with SHIELD:  # whose copy of the main thread would never leave it
        assert in_child(child)


def test_asyncio_has_its_own_handler_while_it_runs():
    async def commit():
        mine = signal.getsignal(signal.SIGINT)
        assert mine is not signal.default_int_handler
        with SHIELD:
            strike()
            assert not asyncio.current_task().cancelling()
        assert signal.getsignal(signal.SIGINT) is mine
        assert asyncio.current_task().cancelling()
        await asyncio.Event().wait()

    with interrupted():
        asyncio.run(commit())


def test_a_handler_that_is_swapped_around_each_cell_is_saved_as_it_is():
    """As the kernel of IPython does it."""
    kernel = lambda *_: None  # noqa: E731
    with handled_by(kernel):
        for _ in range(2):
            saved = signal.signal(signal.SIGINT, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt), SHIELD:
                strike()
            assert signal.signal(signal.SIGINT, saved) is signal.default_int_handler


def test_the_handler_of_pyspark_raises_behind_the_section():
    cancelled = []

    def of_spark(*_):
        cancelled.append(signal.getsignal(signal.SIGINT) is of_spark)
        raise KeyboardInterrupt

    with handled_by(of_spark), interrupted(), SHIELD:
        strike()
        assert not cancelled
    assert cancelled == [True]


def test_in_another_interpreter_there_is_no_shield():
    # The module alone: some builds of CPython abort when an interpreter ends that has imported asyncio.
    inside = (
        f"namespace = {{'__name__': 'interrupts'}}; exec(open({str(ROOT / 'flow/interrupts.py')!r}).read(), namespace)\n"
        "for _ in range(2):\n"
        "    with namespace['SHIELD']: print('inside', flush=True)"
    )
    script = (
        "import importlib\n"
        "for name in ('_interpreters', '_xxsubinterpreters'):\n"
        "    try: interpreters = importlib.import_module(name)\n"
        "    except ImportError: continue\n"
        "    one = interpreters.create()\n"
        f"    said = interpreters.run_string(one, {inside!r})\n"
        "    assert said is None, said\n"
        "    break\n"
        "else: print('inside\\ninside')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == ("inside\ninside\n", "")
