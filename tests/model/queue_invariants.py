"""What must hold in the world of a queue: after each step, and when nothing more happens by itself."""

from typing import Final

from publishers.commits.leadership import Leadership
from tests.model.queue_entries import Entry, Wrong
from tests.model.queue_world import QueueWorld

__all__ = ["check", "check_rest"]

_REFUSED: Final = ("refused", "full", "predecessor", "expectation")


def check(world: QueueWorld) -> None:
    """After each step: one leader, which is the queue's, one group for each entry, and no answer that is not so."""
    queue, waiting = world.queue, list(world.queue._waiting)
    state, leader = queue.state, queue.leader
    if state is Leadership.FREE and (waiting or leader is not None):
        raise Wrong(f"free, with {waiting} and {leader}")
    if state is Leadership.APPOINTED and (not waiting or leader is not waiting[0]):
        raise Wrong(f"{leader} is appointed, and {waiting} wait")
    if state is Leadership.RETURNING and leader is not None:
        raise Wrong(f"{leader} leads while threads return")
    if state is Leadership.LEADING and world.leading not in ([leader], []):
        raise Wrong(f"{leader} leads, and so does {world.leading}")
    if queue._bytes != sum(one.size for one in waiting):  # type: ignore[attr-defined]  # entries of the model
        raise Wrong("the bytes of the queue are wrong")
    if any(one.groups > 1 or world.wal.count(one) > 1 or len(one.answers) > 1 for one in world.entries):
        raise Wrong("an entry is in two groups, or written or answered twice")
    told, world.told = world.told, []
    for entry, what in told:
        _check_answer(world, entry, what)


def _check_answer(world: QueueWorld, entry: Entry, what: str) -> None:
    """What the writer of an entry is told is so; and it has let go of nothing that others need."""
    if not entry.submitted and (entry in world.queue._waiting or (entry.groups and not entry.done)):
        raise Wrong(f"{entry} leaves, and discards what a leader will read or reads")
    if what == "ok" and entry.late:
        raise Wrong(f"{entry} came after the end, and is acknowledged")
    if what == "ok" and entry.task is not None and not entry.ran:
        raise Wrong(f"{entry} is acknowledged, and did not run")
    if what == "ok" and entry.kind in "qz" and world.durable < min(entry.head, len(world.wal)):
        raise Wrong(f"{entry} is acknowledged, and what was there is not durable")
    if what == "ok" and entry.transaction is not None and not entry.forgotten:
        version = entry.version
        if version is None or version > len(world.wal) or world.wal[version - 1] is not entry:
            raise Wrong(f"{entry} is acknowledged as {version}, and is not there")
        if version > world.durable and not world.plan.interval:
            raise Wrong(f"{entry} is acknowledged and not durable")
    if what in _REFUSED and entry in world.wal:
        raise Wrong(f"{entry} is refused, and is in the log")


def check_rest(world: QueueWorld) -> None:
    """When nothing more happens by itself: each is answered, as it is in the log, and nothing is left over."""
    waiting = [name for name in world.threads if name != "arrivals"]
    if waiting:
        raise Wrong(f"for ever: {[(name, world.steps_of[name].name) for name in waiting]}")
    if world.queue.leader is not None or world.queue._waiting or world.queue.outside or world.leading:
        raise Wrong("the queue has a leader or commits, and no thread")
    for one in world.entries:
        covered = one.submitted and _not_yet_visible(world, one)
        if len(one.answers) != 1 and not covered:
            raise Wrong(f"{one} has the answers {one.answers}")
        before = world.wal[: world.wal.index(one)] if one in world.wal else []
        if one.after in world.wal and one in world.wal and one.after not in before:
            raise Wrong(f"{one} stands before {one.after}")
        if one in world.wal and one.after is not None and one.after.error in _REFUSED:
            raise Wrong(f"{one} stands behind {one.after}, which was refused")


def _not_yet_visible(world: QueueWorld, one: Entry) -> bool:
    """Whether a submission waits for what no thread of the plan does: for a sync, or to be published."""
    waits = world.plan.interval or world.withheld is not None
    return one in world.registered and waits and (one.version or 0) > world.visible
