"""F147: lives in which publishers are detached and attached among everything else that happens to them."""

from unittest import mock

import flow
from publishers import Criterion, Where
from publishers.fanout import publish_gate, weights
from tests.harness.inside import service_of
from tests.publishers.support import Probe, everything, opened, order
from tests.publishers.test_invariants import ManualReplayer, chance, slices

__all__ = ["HEAVY", "asking", "run"]

HEAVY = {"detach_weight": 4, "attached_weight": 6, "match_weight": 40, "detached_share": 1.0}


def asking(count, name="n", **more):
    """A wish with so many questions, all of which fit what ``order`` makes."""
    return Criterion(where=[Where(name, "NE", f"no {number}") for number in range(count)], **more)


WISHES = [
    asking(2),
    asking(3),
    asking(3, areas={"DATA"}),
    asking(7),
    asking(9, keys={"0"}),
    asking(9, keys={"1", "2"}),
    Criterion(keys={"1"}),
]


def run(seed):
    """One life, step by step; everybody has every change once and in order. How often a publisher changed its standing."""
    with (
        mock.patch.object(publish_gate, "_JUDGED", 1),
        mock.patch.object(weights, "_PAUSE", 1),
        mock.patch.object(weights, "_LONGEST", 4),
        opened(**HEAVY, ring_events=4, batch_events=5) as log,
    ):
        service_of(log).replayer.close()
        replayer = service_of(log).replayer = ManualReplayer()
        return _live(log, replayer, chance(1000 + seed))


def _live(log, replayer, draw):
    probes, gone, switches, before = [], [], 0, {}
    for _ in range(150):
        for _ in range(draw.randrange(4)):
            log.commit([order(draw.randrange(3)) for _ in range(draw.randrange(4))])
        if len(probes) < 12:
            wish, probe = draw.choice(WISHES), Probe()
            log.changes(wish, since=log.token(log.oldest)).subscribe(probe, executor=flow.INLINE)
            probes.append((probe, wish))
        for probe, _ in draw.sample(probes, draw.randrange(len(probes))):
            probe.request(draw.choice([1, 3, 1000]))
        if draw.random() < 0.2:
            gone.append(probes.pop(draw.randrange(len(probes))))
            gone[-1][0].subscription.cancel()
        if probes and draw.random() < 0.2:
            draw.choice(probes)[0].subscription.pause()
        for probe, _ in probes:
            if draw.random() < 0.5:
                probe.subscription.resume()
        slices(replayer, draw, draw.choice([0, 3, 10**6]))
        now = {one.criteria: one.state for one in service_of(log).registry.publishers()}
        switches += sum(now[key] is not standing for key, standing in before.items() if key in now)
        before = now
    for probe, _ in probes:
        probe.subscription.resume()
        probe.request(10**9)
    slices(replayer, draw, 10**6)
    log.commit([order(0), order(1)])  # an advance alone brings those that have read everything what is new
    slices(replayer, draw, 10**6)
    for probe, wish in probes:
        assert probe.positions == everything(log, wish), wish
        assert probe.clean
    for probe, wish in gone:
        assert probe.positions == everything(log, wish)[: len(probe.positions)], wish
    return switches
