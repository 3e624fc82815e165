"""How many functions of Python a commit enters: what it costs, free of the machine's moods."""

import sys

import pytest

import flow
from publishers import upsert
from tests.publishers.support import opened

MARGIN = 1.1


class Subscriber:
    def on_subscribe(self, subscription):
        subscription.request(1000)

    def on_next(self, change): ...
    def on_error(self, error): ...
    def on_complete(self): ...


def calls_of(work):
    """Calls of functions that are written in Python, those of the standard library included."""
    entered = []

    def note(frame, event, _argument):
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize(("subscribers", "most"), [(0, 51), (1, 163)])
def test_a_durable_commit_of_one_change_enters_few_functions(subscribers, most):
    """Nobody subscribes, or one subscriber INLINE."""
    rows = [upsert("order", "1", b'{"n":1}')]
    with opened(sync="always") as log:
        for _ in range(subscribers):
            log.changes().subscribe(Subscriber(), executor=flow.INLINE)
        for _ in range(3):
            log.commit(rows)
        entered = calls_of(lambda: log.commit(rows))
    assert len(entered) <= MARGIN * most, "\n".join(entered)


def test_a_commit_of_ten_changes_enters_no_more_functions_than_one_of_a_single_change():
    rows = [upsert("order", str(number), b'{"n":1}') for number in range(10)]
    with opened(sync="always") as log:
        log.commit(rows)
        log.commit(rows[:1])
        assert len(calls_of(lambda: log.commit(rows))) <= len(calls_of(lambda: log.commit(rows[:1]))) + 1
