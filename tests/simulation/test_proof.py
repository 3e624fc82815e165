"""The rows of the proof plan, with a fixed sample of the seeds of each; ``make prove`` runs fresh ones, for minutes.

Each prints how much it has run, so that a plan that shrinks is seen.
"""

import logging
import os
import random
import subprocess
import sys
import time
from unittest import mock

# ruff: noqa: T201 - the counts are there to be read
import pytest

from publishers.wal.files import mirrored_file
from tests.harness.scale import scaled
from tests.simulation import crash_states, prove
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
from tests.simulation.rows import CORPUS, ROWS, Row, corpus


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def passes(row: Row, seed: int) -> None:
    try:
        row.run(seed, None)
    except BaseException as error:
        error.add_note(f"replay: {row.command(seed)}")
        raise


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in ROWS for seed in corpus(name)])
def test_what_has_found_something_once_passes(name, seed):
    passes(ROWS[name], seed)


def test_every_corpus_belongs_to_a_row():
    assert {path.stem for path in CORPUS.glob("*.txt")} <= set(ROWS)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.per_commit()])
def test_the_plan_holds(name, capsys):
    """F28, F29, F37, F38, E20: T1 to T5, T16, T17."""
    row = ROWS[name]
    started = time.process_time()
    seeds = row.seeds(random.Random(name))
    for seed in seeds:
        passes(row, seed)
    seconds = time.process_time() - started
    with capsys.disabled():
        total = f" of {row.total():,}" if row.total else ""
        count = len(seeds)
        print(f"\n{name}: {count:,}{total} ({row.what}), {count / seconds:.0f} a second, {seconds:.1f} s")


TRACES = """
import hashlib, logging, sys
from pathlib import Path
from tests.harness.scale import scaled
from tests.publishers.world import live
from tests.simulation.rows import ROWS

logging.disable(logging.CRITICAL)
for name, row in ROWS.items():
    if row.sample == 0:
        continue
    total = row.total() if row.total else None
    count = scaled(20) if total is None else min(scaled(20), total)
    known = hashlib.sha256()
    with Path(sys.argv[1], name).open("w") as kept:
        for number in range(count):
            trace = []
            happened = row.run(number * (total // count) if total else number, trace)
            text = "\\n".join([f"seed {number}", *trace, repr(sorted(happened.items())), ""])
            known.update(text.encode())
            kept.write(text)
    print(name, known.hexdigest())
for seed in range(20, 20 + scaled(12)):
    world = live(seed, 60)
    print("world", seed, [watcher.positions for watcher in world.watchers], world.chance.random())
"""


def test_one_seed_has_one_result_on_every_interpreter(tmp_path, capsys):
    """The traces of some seeds of each row are the same whatever the order in which sets are gone through.

    What depends on that order differs each time. On a machine under load one trace of a store differed once, and never again; neither
    threads nor random bytes explain it, so where it differs is printed.
    """
    one, other = _traces(tmp_path)
    assert len(one) == sum(row.sample != 0 for row in ROWS.values()) + scaled(12)
    if one != other:
        where = _difference(tmp_path)
        with capsys.disabled():
            print(f"\n{where}")
        again, further = _traces(tmp_path)
        assert again == further, (where, _difference(tmp_path))


def _traces(place):
    running = []
    for seed in ("1", "2"):
        (place / seed).mkdir(exist_ok=True)
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", TRACES, str(place / seed)],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(CORPUS.parents[1])},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    found = [process.communicate()[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return found


def _difference(place):
    """The first lines that differ, with those before them."""
    for path in sorted((place / "1").iterdir()):
        texts = [(place / seed / path.name).read_text().splitlines() for seed in ("1", "2")]
        for number, pair in enumerate(zip(*texts, strict=False)):
            if pair[0] != pair[1]:
                return f"{path.name}, line {number}: {texts[0][number - 5 : number]}, then {pair[0]} or {pair[1]}"
    return "the worlds of tests.publishers.world differ, or one trace is longer"


def test_the_enumerations_are_as_large_as_the_plan_wants():
    least = {"T2": 7000, "T3": 160_000, "T4": 15_000, "T5": 2400, "T16": 10, "T17": 26}
    assert {name: ROWS[name].total() >= count for name, count in least.items()} == dict.fromkeys(least, True)
    assert crash_states.operations() >= 60


def test_a_long_run_reaches_every_row_and_says_so(capsys):
    rows = prove.prove(0.0, 1, 1)
    assert [progress.cases for progress in rows] == [0] * len(ROWS)
    broken = next(progress for progress in rows if progress.row.name == "T16")
    broken.cases, broken.seconds, broken.failures = 5, 1.0, [(3, "why")]
    text = prove.table(rows)
    assert all(f"| {name} |" in text for name in ROWS)
    assert "| 5 (" in text
    assert "T16 " in prove.line(rows, 3.0)
    assert len(capsys.readouterr().out) == 0


def test_enumerations_have_half_of_a_long_run_until_they_are_through():
    rows = [
        prove.Progress(ROWS[name], iter(range(10**6))) for name in ("T1", "T3", "T1-small", "T1-deferral")
    ]
    queue = prove.Queue(rows)
    taken = []
    for _ in range(40):
        progress, seeds = queue.take()
        assert len(seeds) == progress.row.chunk
        progress.cases, progress.seconds = progress.cases + len(seeds), progress.seconds + 1.0
        progress.running -= 1
        taken.append(progress.row.name)
    assert taken.count("T3") == 20
    assert min(taken.count(name) for name in ("T1", "T1-small", "T1-deferral")) >= 6
    for progress in rows:
        progress.seeds = iter(())
    assert queue.take() is None


# --- is it sharp? ------------------------------------------------------------------------------------------------------


def _believe(data: bytes) -> bytes:
    return data.rpartition(b"\n")[0]


MUTANTS = {
    "T2 no sync": ("T2", SimulatedFile, "sync", lambda file: file._check_writable()),
    "T2 no directory sync": ("T2", SimulatedFileSystem, "sync_directory", lambda system, path: None),
    "T3 schemas without a crc": ("T3", mirrored_file, "_unsealed", _believe),
    "T5 no sync": ("T5", SimulatedFile, "sync", lambda file: file._check_writable()),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_does_not_survive(name):
    row, target, attribute, replacement = MUTANTS[name]
    crash_states._states.cache_clear()
    try:
        with mock.patch.object(target, attribute, replacement):
            cases = list(range(ROWS[row].total()))
            random.Random(5).shuffle(cases)
            for seed in [*corpus(row), *cases]:
                try:
                    ROWS[row].run(seed, None)
                except Exception:
                    return
    finally:
        crash_states._states.cache_clear()
    pytest.fail(f"{name} survived")
