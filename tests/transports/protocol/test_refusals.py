"""What the machine of ``penstock.v1+json`` answers each field of each message, with each kind of wrong value: codes and data are kept.

``tests/golden/messages/refusals.json`` has, by message and answer, what is answered so; ``OK`` where nothing is refused.
``python -m tests.transports.protocol.test_refusals`` writes it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from transports.limits import Limits
from transports.protocol.connection import Close, Send
from transports.protocol.consumers import ConsumerEntry
from transports.protocol.server import ServerSession
from transports.protocol.states import EntryStage
from transports.protocol.subscriptions import SubscriptionEntry

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "messages" / "refusals.json"
CURSOR: Final = "0b8c6f3e-3c5c-4f5e-9a53-0b8c6f3e1c5c:1.0000000000000001:4:0"
WRONG: Final = (
    None,
    True,
    0,
    -1,
    5,
    1.0,
    1.5,
    2**53,
    2**70,
    "",
    "x",
    "X y",
    "x" * 300,
    [],
    ["x"],
    [5],
    {},
    {"x": 1},
)
MESSAGES: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "subscribe": (
        {"criteria": [], "credits": 1},
        {
            "log": "shop",
            "criteria": [{"entity_types": ["order"]}],
            "content": "BODY",
            "images": "ALL",
            "fields": ["a"],
            "mask": {"a": "null"},
            "integers": "STRING",
            "since": CURSOR,
            "start": "earliest",
            "until": 9,
            "credits": 7,
            "onLag": "fail",
            "onGap": "jump",
            "whole": True,
            "snapshot": "on_gap",
            "heartbeatMs": 5,
            "batch": {"maxEvents": 5, "maxBytes": 100, "lingerMs": 5},
            "slot": {"name": "stock", "takeOver": True, "generation": 3, "opening": "o", "owner": "me"},
        },
    ),
    "subscribe slot": (
        {"slot": {"name": "stock"}, "credits": 1},
        {
            "slot": {"name": "stock", "takeOver": True, "generation": 3, "opening": "o", "owner": "me"},
            "since": CURSOR,
            "criteria": [],
        },
    ),
    "join": (
        {"group": "pickers", "consumer": "anna"},
        {
            "log": "shop",
            "group": "packers",
            "consumer": "bert",
            "credits": 1,
            "generation": 3,
            "opening": "o",
            "received": 4,
            "history": True,
            "integers": "STRING",
        },
    ),
    "schema": ({"entity_type": "order"}, {"log": "shop", "entity_type": "item", "version": 3}),
    "again": ({}, {"criteria": [{"entity_types": ["order"]}], "after": "1", "until": "2"}),
    "append": (
        {"changes": []},
        {
            "log": "shop",
            "producer": "p",
            "sequence": 4,
            "expect": CURSOR,
            "meta": {"a": 1},
            "wait": "visible",
            "first": True,
            "changes": [],
        },
    ),
    "append sequence": (
        {"changes": [], "producer": "p", "sequence": 4},
        {
            "producer": "q",
            "sequence": 5,
            "expect": {"cursor": CURSOR, "keys": [{"entity_type": "a", "key": "b"}]},
        },
    ),
    "begin": ({}, {"log": "shop", "meta": {}, "wait": "durable"}),
}
SLOTS: Final = {
    "log": "shop",
    "name": "other",
    "since": CURSOR,
    "start": {"version": 4},
    "criteria": [{}],
    "granularity": "change",
    "copyFrom": "third",
    "paused": True,
}
GROUPS: Final = {
    "log": "shop",
    "name": "other",
    "since": CURSOR,
    "start": {"version": 4},
    "criteria": [{}],
    "options": {"ack": "all"},
    "limit": 5,
    "after": "42:1",
    "positions": ["42:1", "7:0"],
    "minIdleMs": 5,
}
CALLS: Final[dict[str, dict[str, Any]]] = {
    "ack": {"at": ["a"]},
    "ack_upto": {"at": ["a"]},
    "nack": {"at": ["a"]},
    "in_progress": {"at": ["a"]},
    "term": {"at": ["a"], "reason": "r"},
    "pending": {},
    "claim": {},
    "fly": {},
}
CALL: Final = {
    "at": ["b", "c"],
    "durable": True,
    "delayMs": 5,
    "count": False,
    "error": "e",
    "reason": "r",
    "start": "s",
    "consumer": "c",
    "minIdleMs": 5,
    "limit": 5,
    "onlyIds": True,
}
for _do in ("list", "info", "create", "seek", "pause", "resume", "drop", "fly"):
    MESSAGES[f"slot {_do}"] = ({"do": _do, "name": "stock"}, SLOTS)
MESSAGES["slot"] = ({"name": "stock"}, {"do": "pause", "name": "other"})
for _do in (
    "pending",
    "info",
    "create",
    "reset",
    "pause",
    "resume",
    "drop",
    "dead",
    "discard",
    "release",
    "fly",
):
    MESSAGES[f"groups {_do}"] = ({"do": _do, "name": "pickers"}, GROUPS)
MESSAGES["groups"] = ({"name": "pickers"}, {"do": "pause", "name": "other"})
for _do, _needed in CALLS.items():
    MESSAGES[f"group {_do}"] = (_needed, CALL)


def payloads(base: dict[str, Any], fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A payload for each field with each value, by what it is called in the file."""
    yield "-", base
    for name, right in fields.items():
        yield f"{name} = {json.dumps(right)}", {**base, name: right}
        yield f"no {name}", {one: value for one, value in base.items() if one != name}
        for wrong in WRONG:
            yield f"{name} = {json.dumps(wrong)}", {**base, name: wrong}
        if name in ("batch", "slot", "options"):
            for inner in right:
                for wrong in WRONG:
                    value = {**base.get(name, {}), inner: wrong}
                    yield f"{name}.{inner} = {json.dumps(wrong)}", {**base, name: value}


def answer(kind: str, payload: Any) -> str:
    """What a fresh machine answers: ``OK``, a close code, or an error without its sentence."""
    session = ServerSession(Limits(), server="penstock", now=0.0)
    session.receive('{"type":"connection_init"}', 0.0)
    session.acknowledge()
    message = {"type": kind.split(maxsplit=1)[0], "id": "a", "payload": payload}
    if kind.startswith("group "):
        message |= {"n": 1, "do": kind.split()[1]}
        entry = session.entries["a"] = ConsumerEntry("a")
        entry.stage = EntryStage.ACTIVE
    elif kind == "again":
        asked = session.entries["a"] = SubscriptionEntry("a", 1.0, 0.0)
        asked.stage = EntryStage.ACTIVE
    effect = next(iter(session.receive(json.dumps(message), 0.0)), None)
    if isinstance(effect, Close):
        return str(int(effect.code))
    if not isinstance(effect, Send):
        return "OK"
    said = json.loads(effect.data)
    problem = said["error"] if "error" in said else said["payload"]
    assert said["id"] == "a"
    assert "must" in problem.pop("message")
    assert problem.pop("retryable") is False
    return " ".join([problem.pop("code"), *(f"{name}={value}" for name, value in problem.items())])


def told(kind: str) -> dict[str, list[str]]:
    """What of a message is answered how, by the answer."""
    base, fields = MESSAGES.get(kind, (None, {}))
    broken = [(f"payload = {json.dumps(one)}", one) for one in (None, 5, "x", [])]
    found: dict[str, list[str]] = {}
    for called, payload in [*(() if base is None else payloads(base, fields)), *broken]:
        found.setdefault(answer(kind, payload), []).append(called)
    return found


KINDS: Final = (*MESSAGES, "ack", "request", "complete", "part", "commit", "abort")


@pytest.mark.parametrize("kind", KINDS)
def test_each_refusal_has_the_code_and_the_data_that_it_had(kind: str) -> None:
    """F187: also where the envelope is wrong, which closes the connection."""
    found, golden = told(kind), json.loads(GOLDEN.read_text())[kind]
    different = [
        f"{called} was {before}, is {after}"
        for before, cases in golden.items()
        for after, now in found.items()
        if before != after
        for called in set(cases) & set(now)
    ]
    assert sorted(different) == []
    assert found == golden


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({kind: told(kind) for kind in KINDS}, indent=0) + "\n")
