"""A Starlette application that stores orders in a change log, and serves the changes below ``/live``.

    pip install 'penstock-cdc[graphql,server]' starlette
    uvicorn --app-dir examples in_starlette:app --ws transports:LinkProtocol

Then ``curl -X PUT http://127.0.0.1:8000/orders/42 -d '{"total": "10.00"}'`` commits a change, ``penstock tail
ws://127.0.0.1:8000/live/ws`` prints it, and http://127.0.0.1:8000/live/graphql is GraphiQL.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from publishers import ChangeLog, upsert
from transports import Application


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    with ChangeLog.open("var/orders", wait=20) as log:  # a worker that is replaced still has it
        changes = Application(log, hosts=[])  # further host names of the server, beside this machine's
        app.mount("/live", changes)
        app.state.log = log
        yield
        changes.stop()  # a mounted application gets no shutdown event
        await changes.idle()


async def put(request: Request) -> JSONResponse:
    order = upsert("order", request.path_params["key"], await request.json())
    commit = await request.app.state.log.commit_async([order])
    return JSONResponse({"version": commit.version})


app = Starlette(routes=[Route("/orders/{key}", put, methods=["PUT"])], lifespan=lifespan)
