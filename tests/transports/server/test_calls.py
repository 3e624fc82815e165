"""What a message costs in calls of our own functions, which no other load of the machine changes."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import transports
from publishers import upsert
from tests.transports.server.test_change_driver import connect

ROOT: Final = str(Path(transports.__file__).parents[1])
OURS: Final = tuple(f"{ROOT}/{package}/" for package in ("flow", "publishers", "transports"))
BOUNDS: Final = {
    "everything": ({"criteria": [], "credits": 0}, 210),
    "one entity type": (
        {"criteria": [{"entity_types": ["order"]}], "credits": 10, "content": "BODY"},
        240,
    ),
}
"""What is asked for, and the most calls from the message to ``subscribed``."""


@pytest.mark.parametrize("asked", BOUNDS)
async def test_a_subscription_takes_so_many_calls(log, asked):
    """F187: from the message to ``subscribed``, once another subscription like it has made what they share."""
    payload, most = BOUNDS[asked]
    log.commit([upsert("order", "1", {"a": 1})])
    link = connect(log)
    await asyncio.sleep(0)
    counts = []
    for name in "abc":
        counts.append(0)

        def profile(frame: Any, event: str, _argument: object) -> None:
            counts[-1] += event == "call" and frame.f_code.co_filename.startswith(OURS)

        sys.setprofile(profile)
        try:
            link.receiver.received(json.dumps({"type": "subscribe", "id": name, "payload": payload}))
            # ruff: noqa: ASYNC110 - each turn of the loop is counted
            while not any(one["type"] == "subscribed" and one["id"] == name for one in link.messages):
                await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
    link.receiver.lost()
    assert min(counts) <= most
