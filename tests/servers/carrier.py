"""A process that commits at random and carries everything to a target; tests kill it, and judge what the target holds.

    python -m tests.servers.carrier LOG ADDRESS NAME

For each line ``SEED VERSIONS [drain]`` that it reads it forks, so that a hundred kills cost one start of Python. The child says
``open PID``, commits until the log has so many versions, and ends then; with ``drain`` when the target has confirmed everything.
The parent says ``ended STATUS``.
"""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from publishers import Area, ChangeLog, Content, Operation, remove, truncate, upsert
from transports.sinks import FileSink, RetryPolicy, Sink, SinkOptions, SinkRunner

KEYS = 40
KINDS = ("orders", "bills")
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
os.environ.setdefault("PENSTOCK_TEST_SECRET", SECRET)


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


def _hook(rest: str) -> Sink:
    from transports.sinks.webhook import WebhookSink

    return WebhookSink(rest, secrets=["env:PENSTOCK_TEST_SECRET"], allow=["127.0.0.0/8"], timeout=10)


def _files(rest: str) -> Sink:
    return FileSink(rest, max_bytes=20_000)


_TARGETS = {
    "hook": _hook,
    "files": _files,
    "search": _search,
    "sql": _sql,
    "redis": _redis,
    "kafka": _kafka,
    "kafka_once": _kafka_once,
}


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


def told(log: ChangeLog) -> list[tuple[int, int]]:
    """The positions of all that a target is sent of entities, in the order of the log."""
    found = log.history(None, "earliest", 10**6).changes
    return [(one.version, one.index) for one in found if one.area is Area.DATA]


def carry(path: str, address: str, name: str, seed: str, versions: str, *drain: str) -> None:
    """What a child does."""
    chance, pace = random.Random(seed), threading.Event()
    options = SinkOptions(
        since="earliest",
        batch_changes=20,
        linger=0.0,
        retry=RetryPolicy(first=0.05, limit=0.2),
        store_every=chance.choice((0.0, 0.05, 1.0)),
    )
    with ChangeLog.open(Path(path), sync="os") as log:
        runner = SinkRunner(log, name, target(address), options).start()
        os.write(1, f"open {os.getpid()}\n".encode())
        while log.head.version <= int(versions):
            log.commit(mutations(chance))
            pace.wait(0.001)  # the target is to keep up
        while drain and runner.state.name != "STOPPED":
            status = runner.statistics()
            if log.head in (status.confirmed, status.position):
                break
            if runner.state.name in ("PAUSED", "LOST"):
                sys.exit(f"{runner.state.name}: {runner.statistics().reason}")
            pace.wait(0.01)
        runner.close()


def main(*arguments: str) -> None:
    """See the module."""
    target(arguments[1])  # what it needs is imported once
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                carry(*arguments, *line.split())
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


class Carrier:
    """The parent, as a test has it in its hand.

    Args:
        arguments: LOG, ADDRESS and NAME.
    """

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.servers.carrier", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def begin(self, *told: object) -> int:
        """Starts a child, and returns its process number when it has opened the log."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, told)) + "\n")
        self._process.stdin.flush()
        return int(self._word("open"))

    def ended(self) -> int:
        """Waits until the child has ended; answers how."""
        return int(self._word("ended"))

    def _word(self, expected: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(expected):
            self._process.kill()
            raise AssertionError(f"{line!r} instead of {expected!r}: {self._process.communicate()[1]}")
        return line.split()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main(*sys.argv[1:])
