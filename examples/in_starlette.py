"""A Starlette application that stores orders in a change log, and serves the changes below ``/live``.

    pip install 'penstock-cdc[graphql,server]' starlette
    uvicorn --app-dir examples in_starlette:app --ws penstock_cdc:LinkProtocol

Then ``curl -X PUT http://127.0.0.1:8000/orders/42 -d '{"total": "10.00"}'`` commits a change, ``penstock tail
ws://127.0.0.1:8000/live/ws`` prints it, and http://127.0.0.1:8000/live/graphql is GraphiQL.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from penstock_cdc import Application, ChangeLog, upsert

# In production, HOSTS="shop.example.org" ORIGINS="https://shop.example.org": how clients, and web pages, call this server. All else
# than this machine is refused, with 421 or 403 and a line in the log.
HOSTS = os.environ.get("HOSTS", "").split()
ORIGINS = os.environ.get("ORIGINS", "").split()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    with ChangeLog.open("var/orders", wait=20) as log:  # a worker that is replaced still has it
        changes = Application(log, hosts=HOSTS, origins=ORIGINS)
        app.state.log, app.state.changes = log, changes
        yield
        changes.stop()  # a mounted application gets no shutdown event
        await changes.idle()


async def live(scope: Scope, receive: Receive, send: Send) -> None:
    await scope["app"].state.changes(scope, receive, send)  # that of the running lifespan


async def put(request: Request) -> JSONResponse:
    order = upsert("order", request.path_params["key"], await request.json())
    commit = await request.app.state.log.commit_async([order])
    return JSONResponse({"version": commit.version})


ROUTES = [Route("/orders/{key}", put, methods=["PUT"]), Mount("/live", live)]
app = Starlette(routes=ROUTES, lifespan=lifespan)
