"""Clients that append to a server which is killed: on real sockets, each transaction once or a definite refusal."""

import asyncio
import os
import random
import subprocess
import sys

import pytest

from publishers import ChangeLog, Criterion, upsert
from tests.harness.ports import free_port
from tests.harness.scale import SCALE, scaled
from transports import Backoff, RemoteError, connect

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

APPENDERS = max(6, min(50, int(25 * SCALE)))
"""50 where everything is tried (PENSTOCK_TEST_SCALE=2 or more); fewer in a commit's run."""


class Served:
    """``penstock serve`` on one port, again and again."""

    def __init__(self, path):
        self.port = free_port()
        self.path = path
        self.url = f"ws://127.0.0.1:{self.port}/ws"
        self.process = None

    def start(self):
        command = ["serve", self.path, "--own", "--writable", "--port", self.port]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transports.cli", *map(str, command)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert "as its owner" in self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


async def append(url, name, count, outcomes, progress):
    """Commits in windows, some with an expectation that others race for."""
    chance = random.Random(name)
    seen = None

    async def commit(remote, key, expect):
        try:
            outcomes[key] = await remote.commit_async([upsert("order", key, {"by": name})], expect=expect)
        except RemoteError as error:
            outcomes[key] = error
        progress.release()

    async with connect(url, reconnect=Backoff(first=0.05, limit=0.3)) as remote:
        number = 0
        while number < count:
            window = min(chance.randint(1, 12), count - number)
            keys = [f"{name}-{number + place}" for place in range(window)]
            risky = chance.randrange(window) if seen and chance.random() < 0.5 else -1
            await asyncio.gather(
                *(commit(remote, key, seen if place == risky else None) for place, key in enumerate(keys))
            )
            number += window
            cursors = [getattr(outcomes[key], "cursor", None) for key in keys]
            seen = cursors[-1] or seen


async def run(served, count, kills):
    outcomes, progress = {}, asyncio.Semaphore(0)
    work = [
        asyncio.create_task(append(served.url, f"w{number}", count, outcomes, progress))
        for number in range(APPENDERS)
    ]
    total = APPENDERS * count
    for _ in range(kills):
        for _ in range(total // (kills + 1)):
            await progress.acquire()
        await asyncio.to_thread(served.kill)
        await asyncio.to_thread(served.start)
    await asyncio.gather(*work)
    return outcomes


def test_each_transaction_is_written_once_or_refused_while_the_server_is_killed(place):
    """F145, T8: windows of appenders, kill -9 of the server, expectations that race; in the order of each appender."""
    served = Served(place / "log")
    served.start()
    try:
        outcomes = asyncio.run(run(served, scaled(60), 3))
    finally:
        served.kill()
    with ChangeLog.open(place / "log") as log:
        orders = Criterion(entity_types={"order"})
        written = [change.key for change in log.history(orders, limit=1_000_000).changes]
        versions = {change.key: change.version for change in log.history(orders, limit=1_000_000).changes}
    assert len(written) == len(set(written))
    assert outcomes
    refused = 0
    for key, outcome in outcomes.items():
        if isinstance(outcome, RemoteError):
            refused += 1
            assert (outcome.code, outcome.outcome) == ("EXPECTATION_FAILED", "refused")
            assert key not in versions
        else:
            assert outcome.version == versions[key], key
    assert set(versions) == {key for key, one in outcomes.items() if not isinstance(one, RemoteError)}
    assert refused
    for number in range(APPENDERS):
        mine = [int(key.partition("-")[2]) for key in written if key.startswith(f"w{number}-")]
        assert mine == sorted(mine)
