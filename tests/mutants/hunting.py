"""The simulations that mutants must not survive, seed by seed."""

import contextlib
import io
import logging
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import FrameType

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from publishers.errors import LogFull, WalCorrupted
from publishers.options import LogOptions
from publishers.wal import Wal
from publishers.wal.files.segment import segment_name
from tests.harness.inside import head_writer_of, writer_of
from tests.mutants.bounding import BOUNDS
from tests.mutants.grouping import GROUP_MACHINES
from tests.mutants.listing import MUTANTS
from tests.mutants.patching import Mutant, Stale
from tests.publishers import detaching, test_interleaving
from tests.publishers.test_deferral_machine import Owner
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.publishers.world import live
from tests.simulation import forks, histories
from tests.simulation.deferral import DeferralTrial
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, Trial

__all__ = ["KILLERS", "Survived", "hunt", "rate", "run", "total"]

PATIENCE = 20.0
"""Seconds after which a life counts as one that never ends."""


class Survived(AssertionError):
    """A mutant that no simulation has noticed."""


class Stuck(BaseException):
    """A life goes on for ever; no handler of the code under test is to swallow that."""


def _lives(seed: int) -> None:
    Trial(seed).run()


def _deferrals(seed: int) -> None:
    DeferralTrial(seed).run()


def _world(seed: int) -> None:
    live(seed, 150)


@cache
def _schedules() -> list[tuple[Callable[..., object], int, int, int]]:
    """Two threads in every scenario, with few switches before many: the order in which defects are usually found."""
    found = [
        (scenario, first, before, between)
        for scenario in test_interleaving.SCENARIOS
        for first in (0, 1)
        for before in range(14)
        for between in range(1, 15)
    ]
    random.Random(6).shuffle(found)
    return found


def _threads(seed: int) -> None:
    schedules = _schedules()
    test_interleaving.duel(*schedules[seed % len(schedules)])


@cache
def _damageable() -> tuple[dict[str, bytes], list[tuple[int, list[bytes | None]]], int]:
    """A log in two segments whose HEAD is older than its newest commits; its contents; where the live data begin."""
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=256, head_sync=1000.0))
    fill_segments(log, 2)
    for number in range(8):
        commit(log, b"body %d" % number)
    number, start = head_writer_of(log).head.state.segment, head_writer_of(log).head.state.offset
    assert number == writer_of(log).active.number
    whole = contents(log)
    files = system.snapshot(LOG)
    log.abandon()
    return files, whole, start


def _detaching(seed: int) -> None:
    detaching.run(seed)


def _forks(seed: int) -> None:
    forks.run(seed)


def _histories(seed: int) -> None:
    histories.run(seed)


def _damage(seed: int) -> None:
    """One flipped bit, mostly behind what HEAD vouches for: reported, or the same; only the very last may be lost."""
    files, whole, start = _damageable()
    rng = random.Random(seed)
    names = [name for name in files if name.endswith((".log", ".idx")) or name == "HEAD"]
    name = rng.choice(names)
    damaged = bytearray(files[name])
    live_segment = max(name for name in names if name.endswith(".log"))
    if rng.random() < 0.7:
        name, damaged = live_segment, bytearray(files[live_segment])
        end = len(damaged.rstrip(b"\0"))
        at = rng.randrange(start, end)
    else:
        at = rng.randrange(len(damaged))
    damaged[at] ^= 1 << rng.randrange(8)
    log = None
    try:
        # On a machine that was started anew, where TAIL is no evidence.
        log = opened(SimulatedFileSystem.of(LOG, {**files, name: bytes(damaged)}, boot=2))
        found = contents(log)
    except WalCorrupted:
        return
    finally:
        if log is not None:
            log.abandon()
    assert found in (whole, whole[:-1]), f"{name} at {at}: {len(found)} of {len(whole)}"


@cache
def _behind_head() -> dict[str, bytes]:
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=0))
    fill_segments(log, 2)
    for number in range(6):
        commit(log, b"body %d" % number, b"x" * 40)
    log.close()
    return system.snapshot(LOG)


def _truncation(seed: int) -> None:
    """A log that was closed, cut off somewhere, or without one of its segments: always reported."""
    files = _behind_head()
    name = max(name for name in files if name.endswith(".log"))
    rng = random.Random(seed)
    size = rng.randrange((len(files[name].rstrip(b"\0")) + 7) & -8)
    left = {**files, name: files[name][:size]}
    if rng.random() < 0.2:
        name, size = rng.choice([name for name in files if name.endswith(".log")]), 0
        left = {other: data for other, data in files.items() if other != name}
    try:
        log = opened(SimulatedFileSystem.of(LOG, left))
    except WalCorrupted:
        return
    log.abandon()
    raise AssertionError(f"{name} ends at {size}, and nobody says so")


def _full(seed: int) -> None:
    """A disk without room at some place, then with room: what was refused left nothing, and work goes on.

    The power may be cut right after a refusal: what has been taken back must not come again.
    """
    rng = random.Random(seed)
    settings = options(retain_bytes=None, retain_age=None, fill_step=rng.choice([0, 300, 4096]))
    system = SimulatedFileSystem(seed, capacity=rng.randrange(90_000, 160_000))
    log = opened(system, settings)
    kept: list[tuple[int, list[bytes | None]]] = []
    for number in range(40):
        bodies = [b"%04d" % number * rng.choice([10, 700]) for _ in range(rng.choice([1, 1, 4]))]
        try:
            done = log.append([sealed(body) for body in bodies])  # of a group, as many as had room
            log.sync()
            log.publish_tail(log.visible)
            kept += [(one.version, [body]) for one, body in zip(done, bodies, strict=False)]
        except LogFull:
            assert log.appended == len(kept)
            assert log.failed is None
            system.capacity += 20_000
            if rng.random() < 0.3:
                log = _after_power_cut(log, system, settings)
                assert log.appended == len(kept)
        log.maintain()
    assert contents(log) == kept
    log = _after_power_cut(log, system, settings)
    assert contents(log) == kept
    log.abandon()


def _after_power_cut(log: Wal, system: SimulatedFileSystem, settings: LogOptions) -> Wal:
    log.abandon()
    system.power_cut()
    return opened(system, settings)


def _machine(seed: int) -> None:
    """Programs of an owner who withholds, shows and forgets; each seed is a set of them."""
    few = settings(
        derandomize=True,
        max_examples=15 + seed,
        stateful_step_count=25,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        run_state_machine_as_test(Owner, settings=few)


KILLERS: dict[str, Callable[[int], None]] = {
    "T1": _lives,
    "T1-deferral": _deferrals,
    "T3": _damage,
    "T3-forks": _forks,
    "histories": _histories,
    "T4": _truncation,
    "T5": _full,
    "world": _world,
    "threads": _threads,
    "machine": _machine,
    "detaching": _detaching,
    **BOUNDS,
    **GROUP_MACHINES,
}
"""What is run for each seed: it raises if a promise is broken."""

assert segment_name(1).endswith(".log")


@contextlib.contextmanager
def _patience(seconds: float) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Stuck

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def hunt(mutant: Mutant, most: int | None = None) -> tuple[str, int]:
    """Lets a mutant live until a simulation notices; answers which one, and how many seeds it survived.

    Raises:
        Survived: If none does within so many seeds of each.
    """
    count = mutant.most if most is None else most
    with _prepared():
        for killer in mutant.killers:
            for seed in range(count):
                if _noticed(mutant, killer, seed):
                    return killer, seed
    raise Survived(f"{mutant.name} survived {count} seeds of each of {', '.join(mutant.killers)}")


def rate(mutant: Mutant, killer: str, count: int) -> float:
    """Which share of so many seeds of one simulation notices a mutant."""
    with _prepared():
        return sum(_noticed(mutant, killer, seed) for seed in range(count)) / count


def run(seed: int, trace: list[str] | None = None) -> Mapping[str, int]:
    """T6 as a row: the seed is the number of a mutant."""
    mutant = list(MUTANTS.values())[seed]
    killer, survived = hunt(mutant)
    if trace is not None:
        trace.append(f"{mutant.name}: noticed by {killer} after {survived} seeds")
    return {f"by {killer}": 1}


def total() -> int:
    """How many mutants there are."""
    return len(MUTANTS)


@contextlib.contextmanager
def _prepared() -> Iterator[None]:
    _damageable()  # made by sound code, whoever is hunted first
    _behind_head()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _noticed(mutant: Mutant, killer: str, seed: int) -> bool:
    run = KILLERS[killer]
    try:
        with _patience(PATIENCE), mutant.living():
            run(seed)
    except (NameError, SyntaxError, Stale):
        raise  # the mutant is no program at all
    except (Exception, Stuck):
        return True
    return False
