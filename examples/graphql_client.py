"""Follows a change log with the stock gql client; each change arrives once, even if the server restarts.

    pip install 'gql[websockets]'
    python graphql_client.py ws://127.0.0.1:8090/graphql [CURSOR]

Prints each change as one line of JSON. Pass the cursor of the last line to resume there; without a cursor, the client
starts at the current end of the log.
"""

import asyncio
import json
import sys

from gql import Client, GraphQLRequest
from gql.transport.exceptions import TransportError, TransportQueryError
from gql.transport.websockets import WebsocketsTransport

NOW = "{ logs { head } }"
CHANGES = """
    subscription ($since: Cursor) {
        onChange(since: $since) { cursor version index operation entityType key body }
    }
"""


async def follow(url: str, cursor: str | None) -> None:
    while True:
        try:
            async with Client(transport=WebsocketsTransport(url=url)) as session:
                if cursor is None:
                    cursor = (await session.execute(GraphQLRequest(NOW)))["logs"][0]["head"]
                request = GraphQLRequest(CHANGES, variable_values={"since": cursor})
                async for result in session.subscribe(request):
                    change = result["onChange"]
                    print(json.dumps(change), flush=True)
                    cursor = change["cursor"]
                return
        except TransportQueryError:
            raise  # the server refuses, for example a cursor that is too old
        except (TransportError, OSError) as lost:
            # gql does not reconnect by itself; this loop retries until the server is back.
            print(f"no connection, trying again: {lost.__cause__ or lost}", file=sys.stderr)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
