"""A process that commits at random and carries everything to a target; tests kill it, and judge what the target holds.

    python -m tests.servers.carrier LOG ADDRESS NAME SEED VERSIONS [DRAIN]

It commits until the log has so many versions, and ends then; with DRAIN it does so when the target has confirmed everything.
"""

import random
import sys
import threading
from pathlib import Path
from typing import Any

from publishers import Area, ChangeLog, Content, Operation, remove, truncate, upsert
from transports.sinks import RetryPolicy, Sink, SinkOptions, SinkRunner

KEYS = 40
KINDS = ("orders", "bills")


def target(address: str) -> Sink:
    """The sink of an address: ``KIND=...``."""
    kind, _, rest = address.partition("=")
    return _TARGETS[kind](rest)


def _sql(rest: str) -> Sink:
    from transports.sinks.sql import SqlSink

    return SqlSink(rest, create_tables=True)


def _redis(rest: str) -> Sink:
    from transports.sinks.cache import CacheSink

    return CacheSink(rest, values=True)


def _kafka(rest: str) -> Sink:
    from transports.sinks.kafka import KafkaSink

    servers, _, prefix = rest.partition("/")
    return KafkaSink(servers, f"{prefix}.{{entity_type}}", timeout=10)


def _kafka_once(rest: str) -> Sink:
    from transports.sinks.kafka import ExactlyOnceKafkaSink

    servers, _, prefix = rest.partition("/")
    return ExactlyOnceKafkaSink(servers, f"{prefix}.{{entity_type}}", timeout=10)


def _search(rest: str) -> Sink:
    from transports.sinks.search import SearchSink

    url, _, prefix = rest.rpartition("/")
    return SearchSink(url, f"{prefix}-{{entity_type}}")


_TARGETS = {"search": _search, "sql": _sql, "redis": _redis, "kafka": _kafka, "kafka_once": _kafka_once}


def mutations(chance: random.Random) -> list[Any]:
    """One transaction."""
    made = []
    for _ in range(chance.randint(1, 12)):
        kind, key, draw = chance.choice(KINDS), f"k{chance.randrange(KEYS)}", chance.random()
        if draw < 0.02:
            made.append(truncate(kind))
        elif draw < 0.25:
            made.append(remove(kind, key))
        else:
            made.append(upsert(kind, key, {"n": chance.randrange(10**6), "text": "é" * chance.randrange(40)}))
    return made


def folded(log: ChangeLog) -> dict[tuple[str, str], bytes]:
    """The newest body of each entity, from the log's own history."""
    state: dict[tuple[str, str], bytes] = {}
    for change in log.history(None, "earliest", 10**6, content=Content.BODY).changes:
        if change.area is not Area.DATA or change.entity_type is None:
            continue
        if change.operation is Operation.TRUNCATE:
            state = {one: body for one, body in state.items() if one[0] != change.entity_type}
        elif change.body_bytes is None:
            state.pop((change.entity_type, change.key or ""), None)
        else:
            state[change.entity_type, change.key or ""] = change.body_bytes
    return state


def main(path: str, address: str, name: str, seed: str, versions: str, *drain: str) -> None:
    """See the module."""
    chance, pace = random.Random(seed), threading.Event()
    options = SinkOptions(
        start="earliest", batch_changes=20, linger=0.0, retry=RetryPolicy(first=0.05, limit=0.2)
    )
    with ChangeLog.open(Path(path), sync="os") as log:
        runner = SinkRunner(log, name, target(address), options).start()
        sys.stdout.write("open\n")
        sys.stdout.flush()
        while log.head.version <= int(versions):
            log.commit(mutations(chance))
            pace.wait(0.001)  # the target is to keep up
        while drain and runner.state.name != "STOPPED":
            status = runner.statistics()
            if log.head in (status.confirmed, status.position):
                break
            if runner.state.name == "PAUSED":
                sys.exit(f"paused: {runner.statistics().reason}")
            pace.wait(0.01)
        runner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
