"""A receiver of webhooks in a process of its own (FastAPI on uvicorn): it verifies, and keeps each batch synced before it answers.

``uvicorn --factory tests.servers.hook_receiver:receiver`` in the directory where it keeps them.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

from tests.servers.carrier import SECRET
from tests.servers.program import Program

ROOT = Path(__file__).parents[2]


class HookReceiver(Program):
    """The process.

    Args:
        folder: Where a file of each name has what was sent to ``/NAME``, a line a batch.
    """

    name = "the receiver of webhooks"

    def environment(self) -> dict[str, str]:
        """See `Program.environment`."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def command(self) -> list[str]:
        """See `Program.command`."""
        told = ["--factory", "tests.servers.hook_receiver:receiver", "--port", str(self.port)]
        return [sys.executable, "-m", "uvicorn", *told, "--log-level", "warning"]

    def answers(self) -> bool:
        """See `Program.answers`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2):
            return True


def receiver() -> Any:
    """The application."""
    from fastapi import FastAPI, HTTPException, Request
    from standardwebhooks.webhooks import Webhook, WebhookVerificationError

    app, hook = FastAPI(), Webhook(SECRET)

    @app.post("/{name}")
    async def receive(name: str, request: Request) -> dict[str, bool]:
        body = await request.body()
        try:
            hook.verify(body, dict(request.headers))
        except WebhookVerificationError as error:
            raise HTTPException(401, str(error)) from None
        _keep(Path(f"{name}.jsonl"), body)
        return {"ok": True}

    return app


def _keep(path: Path, body: bytes) -> None:
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a kill has cut a line
                file.write(b"\n")
        file.write(body + b"\n")
        file.flush()
        os.fsync(file.fileno())
