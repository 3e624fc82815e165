"""A Litestar application that stores orders in a change log, and serves the changes below ``/live``.

    pip install 'penstock-cdc[graphql,server]' litestar
    uvicorn --app-dir examples in_litestar:app --ws penstock_cdc:LinkProtocol

Then ``curl -X PUT http://127.0.0.1:8000/orders/42 -d '{"total": "10.00"}'`` commits a change, ``penstock tail
ws://127.0.0.1:8000/live/ws`` prints it, and http://127.0.0.1:8000/live/graphql is GraphiQL.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, asgi, put
from litestar.datastructures import State
from litestar.types import Receive, Scope, Send

from penstock_cdc import Application, ChangeLog, upsert

# In production, HOSTS="shop.example.org" ORIGINS="https://shop.example.org": how clients, and web pages, call this server. All else
# than this machine is refused, with 421 or 403 and a line in the log.
HOSTS = os.environ.get("HOSTS", "").split()
ORIGINS = os.environ.get("ORIGINS", "").split()


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    with ChangeLog.open("var/orders", wait=20) as log:  # a worker that is replaced still has it
        changes = Application(log, hosts=HOSTS, origins=ORIGINS)
        app.state.log, app.state.changes = log, changes
        yield
        changes.stop()  # a mounted application gets no shutdown event
        await changes.idle()


@asgi("/live", is_mount=True, copy_scope=True)
async def live(scope: Scope, receive: Receive, send: Send) -> None:
    await Litestar.from_scope(scope).state.changes(scope, receive, send)


@put("/orders/{key:str}")
async def put_order(key: str, data: dict[str, Any], state: State) -> dict[str, int]:
    commit = await state.log.commit_async([upsert("order", key, data)])
    return {"version": commit.version}


app = Litestar([live, put_order], lifespan=[lifespan])
