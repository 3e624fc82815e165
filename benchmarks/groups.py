"""Groups: reading and acknowledging new changes, beside a consumer group of Redis Streams, and a pull consumer of NATS JetStream.

A group is used in the process that owns its log, the peers through their Python clients over a local socket. There are two classes of durability: an
acknowledgement is synced later (by penstock after 200 ms, by the peers every second), or before the call returns.
"""

import itertools
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.harness import Table, Variant, compare, timed
from benchmarks.jetstream import jet_stream
from benchmarks.peers import missing, redis_stream
from publishers import ChangeLog, upsert

SIZES: Final = {1: (3_000, 300), 100: (20_000, 5_000), 1_000: (50_000, 20_000)}
"""Changes of a round, with a later sync and with a sync before the call returns, by the number acknowledged at once."""
GOALS: Final = {True: 1.8, False: 1.15}
_BODY: Final = b'{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","status":"DEPARTED","delay":-1,"tailnum":"N804JB"}'
_NAMES: Final = {"key": "group", "none": 'group, ordering="none"'}


def run(directory: Path) -> dict[str, Table]:
    """Both classes of durability, and each size."""
    place = Path(tempfile.mkdtemp(dir=directory))
    return {
        f"{size} at once, {'durable' if durable else 'later'}": shared(
            place, size, changes[durable], durable=durable
        )
        for durable in (False, True)
        for size, changes in SIZES.items()
    }


def shared(place: Path, size: int, changes: int, *, durable: bool) -> Table:
    """One consumer reads and acknowledges all changes, ``size`` at a time."""
    here = Path(tempfile.mkdtemp(dir=place))
    rows = [upsert("flight", f"B6/{number}", _BODY) for number in range(changes)]
    log = ChangeLog.open(here / "log", sync="os")
    redis, jets = redis_stream(here, synced=durable), jet_stream(here, synced=durable)
    for start in range(0, changes, 1_000):
        log.commit(rows[start : start + 1_000])
        for one in (redis, jets):
            if one is not None:
                one.write(rows[start : start + 1_000])
    numbers = itertools.count()

    def group(ordering: str) -> int:
        name, done = f"g{next(numbers)}", 0
        bound = max(size, 1)
        made = log.groups.create(
            name,
            since="earliest",
            ordering=ordering,
            max_ack_pending=bound,
            max_consumer_pending=bound,
            max_bytes=2**30,
        )
        with made.join("one") as worker:
            while deliveries := worker.read(size, wait=0):
                done += worker.ack(*deliveries, durable=durable)
        log.groups.drop(name)
        assert done == changes
        return done

    variants = [
        Variant(title, lambda ordering=ordering: timed(lambda: group(ordering)))  # type: ignore[misc]  # bound early
        for ordering, title in _NAMES.items()
    ]
    variants += [
        Variant(one.name, lambda one=one: timed(lambda: one.share(f"g{next(numbers)}", size)))  # type: ignore[misc]  # likewise
        for one in (redis, jets)
        if one is not None
    ]
    told = "synced before an acknowledgement returns" if durable else "acknowledgements are synced later"
    table = compare(
        f"read and acknowledge by {size:,}, {'durable' if durable else 'synced later'}",
        "changes/s",
        variants,
        sizes=f"C=1, {changes:,} changes; {told}",
    )
    for text in () if redis is not None else missing():
        if "Redis" in text:
            table.note(text)
    if jets is None:
        table.note("NATS JetStream: not measured, nats-server or nats-py is not installed")
    else:
        jets.close()
    if redis is not None:
        if not durable or size == max(SIZES):
            table.reach(_NAMES["key"], ">=", GOALS[durable], redis.name)
        redis.close()
    log.close()
    return table
