import threading
import time

import pytest

from penstock_flights.ledger import Ledger
from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.mutations.mutation import upsert

DEADLINE = 120.0


def commit(log, rows):
    log.commit([upsert("flight", f"AA/{number}", {"n": number}) for number in range(rows)])


def wait(condition):
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "it did not come to pass in time"
        threading.Event().wait(0.01)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log") as opened:
        yield opened


def test_it_counts_what_was_there_and_what_comes(log):
    commit(log, 3)
    ledger = Ledger()
    ledger.start(log)
    commit(log, 5)
    commit(log, 1)
    wait(lambda: ledger.version == 3 or ledger.error)
    assert ledger.changes == 9
    ledger.stop()


def test_a_position_is_as_many_changes_as_lie_before_it(log):
    commit(log, 3)
    commit(log, 5)
    ledger = Ledger()
    ledger.start(log)
    wait(lambda: ledger.version == 2 or ledger.error)
    told = {
        (0, 0): 0, (1, 0): 0, (1, 1): 0, (1, 2): 1, (1, 3): 2,
        (2, 0): 3, (2, 1): 3, (2, 5): 7, (3, 0): 8, (3, 4): 8, (9, 0): 8,
    }  # fmt: skip
    assert {place: ledger.before(Position(*place)) for place in told} == told


def test_before_anything_is_known_everything_is_at_the_beginning():
    ledger = Ledger()
    assert (ledger.version, ledger.changes, ledger.before(Position(5, 2))) == (0, 0, 0)
    ledger.stop()
