import gc
import itertools

from publishers.spark import task_garbage


def test_collections_pass_over_what_the_second_task_of_a_worker_finds_and_that_once(monkeypatch):
    frozen = []
    monkeypatch.setattr(task_garbage, "_tasks", itertools.count(1))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("all"))
    told = []
    for _ in range(4):
        task_garbage.spare_what_is_loaded()
        told.append(len(frozen))
    assert told == [0, 1, 1, 1]
