"""The rows of the proof plan, as many seeds of each as a commit has to pass; ``make prove`` runs all, for minutes.

Each prints how much it has run, so that a plan that shrinks is seen.
"""

import logging
import random
import secrets
import time
from unittest import mock

# ruff: noqa: T201 - the counts are there to be read
import pytest

from publishers import schemas
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
    assert {path.stem for path in CORPUS.glob("T*.txt")} <= set(ROWS)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.sample != 0])
def test_the_plan_holds(name, capsys):
    row = ROWS[name]
    started = time.process_time()
    count = 0
    for seed in row.seeds(random.Random(secrets.randbits(64))):
        passes(row, seed)
        count += 1
    seconds = time.process_time() - started
    with capsys.disabled():
        total = f" of {row.total():,}" if row.total else ""
        print(f"\n{name}: {count:,}{total} ({row.what}), {count / seconds:.0f} a second, {seconds:.1f} s")
    assert count == row.per_commit()


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
    assert len(capsys.readouterr().out) == 0


# --- is it sharp? ------------------------------------------------------------------------------------------------------


def _believe(data: bytes) -> bytes:
    return data.rpartition(b"\n")[0]


MUTANTS = {
    "T2 no sync": ("T2", SimulatedFile, "sync", lambda file: file._check_writable()),
    "T2 no directory sync": ("T2", SimulatedFileSystem, "sync_directory", lambda system, path: None),
    "T3 schemas without a crc": ("T3", schemas, "_unseal", _believe),
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
