"""A client in Python that is watched for long: reads a log from its beginning, and tells what came when it gets a line.

``python -m tests.soak.follower URL SECONDS``; it tells what ``tests/clients/following.mjs`` does.
"""

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

import flow
from transports import ConnectionLost, RemoteError, connect


async def main(url: str, seconds: float) -> None:
    told: dict[str, Any] = {"next": [1, 0], "came": [], "faults": [], "connections": 0, "lost": {}}

    async def token() -> str:
        told["connections"] += 1
        return str(datetime.now(UTC).timestamp() + seconds)

    def lost(error: ConnectionLost | RemoteError, _delay: float) -> None:
        told["lost"][str(error)] = told["lost"].get(str(error), 0) + 1

    async def read() -> None:
        async with (
            connect(url, reconnect=True, token=token, on_wait=lost) as log,
            flow.aiter(log.changes(since="earliest", window=64)) as changes,
        ):
            async for change in changes:
                if [change.version, change.index] != told["next"]:
                    told["faults"].append(f"{change.version}:{change.index} came instead of {told['next']}")
                last = change.index + 1 == change.count
                told["next"] = [change.version + 1, 0] if last else [change.version, change.index + 1]
                told["came"].append(datetime.now(UTC).timestamp() * 1e3)

    async def answer() -> None:
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()

    reading, answering = asyncio.create_task(read()), asyncio.create_task(answer())
    await asyncio.wait([reading, answering], return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        told["faults"].append(f"ended: {reading.exception()!r}")
    await answering
    reading.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
