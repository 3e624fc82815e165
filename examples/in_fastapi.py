"""A FastAPI application that stores orders in a change log, and serves the changes below ``/live``.

    pip install 'penstock-cdc[graphql,server]' fastapi
    uvicorn --app-dir examples in_fastapi:app --ws penstock_cdc:LinkProtocol

Then ``curl -X PUT http://127.0.0.1:8000/orders/42 -H 'content-type: application/json' -d '{"total": "10.00"}'`` commits a
change, ``penstock tail ws://127.0.0.1:8000/live/ws`` prints it, and http://127.0.0.1:8000/live/graphql is GraphiQL.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from penstock_cdc import Application, ChangeLog, upsert

# In production, HOSTS="shop.example.org" ORIGINS="https://shop.example.org": how clients, and web pages, call this server. All else
# than this machine is refused, with 421 or 403 and a line in the log.
HOSTS = os.environ.get("HOSTS", "").split()
ORIGINS = os.environ.get("ORIGINS", "").split()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with ChangeLog.open("var/orders", wait=20) as log:  # a worker that is replaced still has it
        changes = Application(log, hosts=HOSTS, origins=ORIGINS)
        app.state.log, app.state.changes = log, changes
        yield
        changes.stop()  # a mounted application gets no shutdown event
        await changes.idle()


async def live(scope: Scope, receive: Receive, send: Send) -> None:
    await scope["app"].state.changes(scope, receive, send)  # that of the running lifespan


app = FastAPI(lifespan=lifespan)
app.mount("/live", live)


@app.put("/orders/{key}")
async def put(key: str, order: dict[str, Any], request: Request) -> dict[str, int]:
    commit = await request.app.state.log.commit_async([upsert("order", key, order)])
    return {"version": commit.version}
