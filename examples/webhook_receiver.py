"""A receiver of webhooks, with FastAPI: verifies who sends, and applies each change once.

    WEBHOOK_SECRET=whsec_... uvicorn webhook_receiver:app --app-dir examples

The sender is a ``WebhookSink`` with ``secrets=["env:WEBHOOK_SECRET"]``.
"""

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

app = FastAPI()
stock: dict[str, Any] = {}
applied: dict[str, tuple[int, int]] = {}  # of each product the position of its last change


@app.post("/hook")
async def receive(request: Request) -> dict[str, list[dict[str, str]]]:
    try:
        batch = Webhook(os.environ["WEBHOOK_SECRET"]).verify(await request.body(), dict(request.headers))
    except WebhookVerificationError as error:
        raise HTTPException(401, str(error)) from None
    failed: list[dict[str, str]] = []
    for change in batch["changes"]:
        try:
            apply(change)
        except ValueError as error:
            failed.append({"id": change["id"], "error": str(error)})
    return {"failed": failed}


def apply(change: dict[str, Any]) -> None:
    """Changes may come again, so what is not newer than what was applied is left out."""
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
