"""Two clients append to one server: each transaction is written once, and none overwrites a change its writer has not seen.

Run it: python examples/appending_client.py
"""

import asyncio
import tempfile

from penstock_cdc import ChangeLog, Grant, LogAction, connect, remove, serve, upsert
from penstock_cdc.errors import RemoteError


async def append(url: str) -> None:
    async with connect(url, reconnect=True) as ann, connect(url, reconnect=True) as bob:
        # Concurrent transactions share writes to the disk. After a lost connection the client repeats those without an answer.
        commits = await asyncio.gather(
            *(ann.commit_async([upsert("order", str(n), {"total": n})]) for n in range(100))
        )
        print("orders up to version", commits[-1].version)
        seen = commits[-1].cursor
        assert seen is not None
        await bob.commit_async([upsert("stock", "bolts", {"left": 9})], expect=seen)
        try:
            await ann.commit_async(
                [upsert("stock", "bolts", {"left": 8})], expect=(seen, [("stock", "bolts")])
            )
        except RemoteError as error:
            print(error.code, "of", error.data["key"], "and nothing was written:", error.outcome)
        changes = [upsert("order", "100", {"total": 100}), remove("order", "0")]
        await ann.commit_async(changes, meta={"by": "ann"}, producer=("ann", 1))
        again = await ann.commit_async(changes, producer=("ann", 1))
        print("a repetition is a duplicate:", again.duplicate, "of version", again.version)


def main() -> None:
    writers = Grant({LogAction.READ, LogAction.WRITE})
    with (
        tempfile.TemporaryDirectory() as directory,
        ChangeLog.open(directory) as log,
        serve(log, authorise=writers) as server,
    ):
        asyncio.run(append(server.url))


if __name__ == "__main__":
    main()
