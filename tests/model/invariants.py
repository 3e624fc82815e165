"""What must hold in a world: after each step, and when nothing more happens by itself."""

from publishers.fanout.state import Phase
from tests.model.world import World, Wrong

__all__ = ["check", "check_rest"]


def check(world: World) -> None:
    """What must hold after each step: where a cursor says that it stands, it stands, and nobody else has it."""
    ring = world.ring
    for one in world.cursors:
        phase, stands = one.phase, one.place is not None
        seated = one.bench is not None and one in one.bench.members
        at = one.bench if seated else one
        if (one.drain.at == "lent") is not (one.bench is not None) and not world.bench:
            raise Wrong("its flag is lent, and nobody has it")
        if stands and (at.place < ring._base or at not in ring._standing.get(at.place, {}).get(None, ())):
            raise Wrong("it is not in the ring where it says")
        if (phase is Phase.LIVE and not stands) or (
            stands and phase in (Phase.RESYNC, Phase.WAITING, Phase.ENDED)
        ):
            raise Wrong(f"{phase.name} and in the ring: {stands}")
        if phase is Phase.LIVE and ring.start > max(one.next, at.next):
            raise Wrong("it is LIVE, and the ring does not cover its place")
        reading = one.reading
        if (phase is Phase.JOINING and reading is None) or (
            reading is not None and phase not in (Phase.JOINING, Phase.ENDED)
        ):
            raise Wrong(f"{phase.name}, and the replayer has it: {reading}")
        if reading is not None and reading.at == "begin" and stands:
            raise Wrong("it pins the ring while it waits for its turn")
        if one.held and phase not in (Phase.JOINING, Phase.PAUSED, Phase.ENDED):
            raise Wrong(f"it is paused and {phase.name}")
    if ring.served != sum(one.live for one in world.cursors):
        raise Wrong("the ring has lost count")


def check_rest(world: World) -> None:
    """What must hold when nothing more happens by itself: whatever is due was given, and an advance finds it."""
    for number, one in enumerate(world.cursors):
        due = world.versions.find("m", one.expects - 1) + 1
        if one.phase in (Phase.ENDED, Phase.PAUSED):
            if one.filled:
                raise Wrong("it takes nothing, and keeps what was read")
            continue
        if one.demand and due and due <= world.visible:
            raise Wrong(f"{one.phase.name} with demand, and {due} is not given: stranded")
        if one.phase is Phase.JOINING or (one.phase is Phase.WAITING and number not in world.listed):
            raise Wrong(f"{one.phase.name}, and nothing will wake it")
        if one.demand and one.phase is Phase.RESYNC:
            raise Wrong("RESYNC with demand, and nothing will wake it")
