"""A webhook receiver with FastAPI: verifies the signature of the sender, and applies each change once.

    pip install fastapi standardwebhooks uvicorn
    WEBHOOK_SECRET=whsec_... uvicorn webhook_receiver:app --app-dir examples

The sender is a ``WebhookSink`` with ``secrets=["env:WEBHOOK_SECRET"]``.
"""

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

app = FastAPI()
stock: dict[str, Any] = {}
applied: dict[str, tuple[int, int]] = {}  # product -> position of its last applied change


@app.post("/hook")
async def receive(request: Request) -> dict[str, list[dict[str, str]]]:
    try:
        batch = Webhook(os.environ["WEBHOOK_SECRET"]).verify(await request.body(), dict(request.headers))
    except WebhookVerificationError as error:
        raise HTTPException(401, str(error)) from None
    failed: list[dict[str, str]] = []
    if "penstock-test" in request.headers:  # an example of `penstock sinks test`
        return {"failed": failed}
    for change in batch["changes"]:
        try:
            apply(change)
        except ValueError as error:
            failed.append({"id": change["id"], "error": str(error)})
    return {"failed": failed}


def apply(change: dict[str, Any]) -> None:
    """Applies a change unless it is a repetition: its position must be newer than the last applied one of its product."""
    key, position = change["key"], (change["version"], change["index"])
    if key is None or position <= applied.get(key, (0, 0)):
        return
    if change["operation"] == "REMOVE":
        stock.pop(key, None)
    elif change["body"]["count"] < 0:
        raise ValueError("there are no negative counts")
    else:
        stock[key] = change["body"]
    applied[key] = position
