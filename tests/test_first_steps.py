"""What somebody gets wrong on the first day, and what is said then: the value, and what would be right."""

import pytest

import flow
from publishers import ChangeLog, Criterion, Position, upsert
from publishers.errors import PenstockError
from tests.publishers.support import Probe, opened
from transports import Limits, TokenFile, serve

MISTAKES = {
    "a place by another word": (lambda log: log.changes(since="begin"), "'begin'", "'earliest' or 'latest'"),
    "a cursor that was cut": (
        lambda log: log.changes(since="0f:1"),
        "'0f:1'",
        "log_id:epoch.random:version:index",
    ),
    "an option with a slip": (
        lambda log: ChangeLog.open(log.path, ring_event=3),
        "ring_event is 3",
        "ring_events",
    ),
    "an option that is none": (lambda log: ChangeLog.open(log.path, zzz=3), "zzz is 3", "one of sync"),
    "a path in place of a log": (lambda log: serve(str(log.path)), "log is '", "ChangeLog.open(path"),
    "a path among logs": (lambda log: serve({"shop": log.path}), "log is ", "ChangeLog.open(path"),
    "a name in place of a wish": (lambda log: log.changes("order"), "'order'", "a Criterion"),
    "a text in place of keys": (lambda _: Criterion(keys="abc"), "'abc'", "a set or list"),
    "no entity type": (lambda _: upsert("", "1", {}), "entity_type is ''", "1 to 1024 characters"),
    "no key": (lambda _: upsert("order", "", {}), "key is ''", "at least one character"),
    "a second writer": (
        lambda log: ChangeLog.open(log.path),
        "is being written by process",
        "read_only=True",
    ),
    "a directory without a log": (
        lambda log: ChangeLog.open(log.path.parent, read_only=True),
        "is not a change log",
        "no HEAD",
    ),
    "a place beyond the end": (lambda log: _subscribed(log, Position(99)), "beyond the end", "1:0"),
    "a file of tokens that is not there": (
        lambda _: TokenFile("missing"),
        "'missing'",
        "a file that can be read",
    ),
    "a limit of nothing": (lambda _: Limits(connections=0), "connections is 0", "above 0"),
}


def _subscribed(log, since):
    log.changes(since=since).subscribe(probe := Probe(), executor=flow.INLINE)
    raise probe.error


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_its_value_and_with_what_would_be_right(mistake):
    call, what, right = MISTAKES[mistake]
    with opened() as log, pytest.raises(PenstockError) as caught:
        call(log)
    said = str(caught.value)
    assert what in said
    assert right in said
    assert "\n" not in said
