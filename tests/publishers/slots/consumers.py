"""Consumers of slots, for tests."""

import flow
from publishers.slots.progress import behind_change
from tests.harness.inside import progress_of
from tests.publishers.support import Probe, wait_until


def take(slot, count, **view):
    """The next changes of a slot."""
    found = []
    with flow.iter_blocking(slot.changes(**view), prefetch=1) as changes:
        for change in changes:
            found.append(change)
            if len(found) == count:
                break
    return found


def served(slot, demand=10**6, probe=None):
    """A probe that is given the changes of a slot as they are committed."""
    probe = probe or Probe(first=demand)
    slot.changes().subscribe(probe, executor=flow.INLINE)
    return probe


def caught_up(slot, log):
    """A probe that has everything that there is."""
    probe = served(slot)

    def has_everything():
        progress = progress_of(slot)  # a change is noted there before the probe has it
        noted = progress._last == (0, 0) or progress.given in map(behind_change, probe.changes[-1:])
        return slot.delivered == log.head and noted

    wait_until(has_everything, probe.state)
    return probe
