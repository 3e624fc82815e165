"""A log served over WebSockets, and a client that follows it at its own pace.

Run it: python examples/websocket_client.py
"""

import asyncio
import tempfile

from penstock_cdc import ChangeLog, Content, Criterion, connect, flow, serve


async def follow(url: str) -> None:
    # prefetch bounds the demand: at most 8 orders are in flight at any time.
    async with connect(url, reconnect=True) as remote:
        feed = remote.changes(
            Criterion(entity_types={"order"}), since="earliest", until=3, content=Content.BODY
        )
        async with flow.aiter(feed, prefetch=8) as orders:
            async for order in orders:
                print(order.key, order.operation.name, order.body)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, ChangeLog.open(directory) as log:
        for total in ("10.00", "11.00", "12.00"):
            with log.transaction() as tx:
                tx.upsert("order", "42", {"total": total})
                tx.upsert("customer", "7", {"orders": 1})
        server = serve(log, port=0)
        try:
            asyncio.run(follow(server.url))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
