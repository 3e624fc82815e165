"""A FastAPI application that stores orders in a change log, and serves the changes below ``/live``.

    pip install 'penstock-cdc[graphql,server]' fastapi
    uvicorn --app-dir examples in_fastapi:app --ws transports:LinkProtocol

Then ``curl -X PUT http://127.0.0.1:8000/orders/42 -H 'content-type: application/json' -d '{"total": "10.00"}'`` commits a
change, ``penstock tail ws://127.0.0.1:8000/live/ws`` prints it, and http://127.0.0.1:8000/live/graphql is GraphiQL.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request

from publishers import ChangeLog, upsert
from transports import Application


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with ChangeLog.open("var/orders", wait=20) as log:  # a worker that is replaced still has it
        changes = Application(log, hosts=[])  # further host names of the server, beside this machine's
        app.mount("/live", changes)
        app.state.log = log
        yield
        changes.stop()  # a mounted application gets no shutdown event
        await changes.idle()


app = FastAPI(lifespan=lifespan)


@app.put("/orders/{key}")
async def put(key: str, order: dict[str, Any], request: Request) -> dict[str, int]:
    commit = await request.app.state.log.commit_async([upsert("order", key, order)])
    return {"version": commit.version}
