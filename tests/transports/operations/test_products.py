"""Each operation over each face with each permission: who is allowed has it done, and who is refused is told and nothing is done."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import websockets

from publishers import ChangeLog, upsert
from publishers.mutations.mutation import schema
from tests.contracts.place import Place
from tests.publishers.support import scratch
from tests.transports.operations.page import command, name_of
from transports import Grant, LogAction, RemoteError, connect, serve
from transports.cli import main
from transports.codec.fields import convert
from transports.operations.operation import LogOperation, Target
from transports.operations.slots import SLOTS, SlotOperation
from transports.operations.table import OPERATIONS

SAMPLES: Final[dict[str, tuple[dict[str, Any], list[str]]]] = {
    "schema": ({"entity_type": "order"}, ["order"]),
    "slot info": ({"name": "stock"}, ["stock"]),
    "slot list": ({}, []),
    "slot create": ({"name": "stock-2"}, ["stock-2"]),
    "slot seek": ({"name": "stock", "start": "latest"}, ["stock", "latest"]),
    "slot pause": ({"name": "stock"}, ["stock"]),
    "slot resume": ({"name": "stock"}, ["stock"]),
    "slot drop": ({"name": "stock"}, ["stock"]),
    "groups pending": ({"name": "pickers"}, ["pickers"]),
    "groups info": ({"name": "pickers"}, ["pickers"]),
    "groups create": ({"name": "pickers-2"}, ["pickers-2"]),
    "groups reset": ({"name": "pickers", "start": "latest"}, ["pickers", "latest"]),
    "groups pause": ({"name": "pickers"}, ["pickers"]),
    "groups resume": ({"name": "pickers"}, ["pickers"]),
    "groups drop": ({"name": "pickers"}, ["pickers"]),
    "groups dead": ({"name": "pickers"}, ["pickers"]),
    "groups discard": ({"name": "pickers"}, ["pickers"]),
    "groups release": ({"name": "pickers"}, ["pickers"]),
}
"""Fields of each operation, and the arguments of its command behind the URL."""
EVERY: Final = Grant(set(LogAction), slots=["stock*"], groups=["pickers*"])
UNNAMED: Final = Grant({LogAction.READ, LogAction.CONSUME}, slots=["other"], groups=["other"])
PAIRS: Final = [
    (one, face)
    for one in OPERATIONS
    for face in ("websocket", "python", "command")
    if (name_of(one), face) != ("groups info", "command")  # it reads the statistics, see the page
]
IDS: Final = [name_of(one) for one in OPERATIONS]


class Asked:
    """Has an operation done at a server over one face; answers ``OK`` or the code of the refusal."""

    def __init__(self, url: str, log: str) -> None:
        self.url = url
        self.log = log

    def websocket(self, operation: type[LogOperation[Any]]) -> str:
        name = name_of(operation)
        message, _, do = name.partition(" ")
        payload = {**SAMPLES[name][0], "log": self.log, **({"do": do} if do else {})}

        async def ask() -> str:
            async with websockets.connect(self.url, proxy=None) as socket:
                await socket.send('{"type":"connection_init"}')
                await socket.send(json.dumps({"type": message, "id": "a", "payload": payload}))
                while (told := json.loads(await socket.recv()))["type"] not in (message, "error"):
                    pass
                assert told["id"] == "a"
                return "OK" if told["type"] == message else str(told["payload"]["code"])

        return asyncio.run(ask())

    def python(self, operation: type[LogOperation[Any]]) -> str:
        asked = convert(operation, {**SAMPLES[name_of(operation)][0], "log": self.log})

        async def ask() -> str:
            async with connect(self.url) as remote:
                try:
                    await remote.ask(asked)
                except RemoteError as error:
                    return error.code
                return "OK"

        return asyncio.run(ask())

    def command(self, operation: type[LogOperation[Any]]) -> str:
        name = name_of(operation)
        url = self.url.replace("ws", "http", 1).removesuffix("ws")
        words = [*command(name).split(), url, *SAMPLES[name][1], "--log", self.log]
        return "OK" if main(words) == 0 else "FORBIDDEN"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place(Path(scratch()))
    assert place.server.url  # it starts before the first test, which would be told to end it
    yield place
    place.close()


@pytest.fixture
def log(place: Place) -> Iterator[ChangeLog]:
    """A log with a schema, a paused slot, and a group with a dead letter."""
    with place.open() as log:
        log.commit([schema("order", {"type": "record", "fields": []}), upsert("order", "1", {"a": 1})])
        log.slots.create("stock", since="earliest")
        log.groups.create("pickers", since="earliest")
        with log.groups.open("pickers").join("one") as worker:
            for one in worker.read(2, wait=0):
                worker.term(one, "no")
        yield log
    del place.logs[log.name]


def state(log: ChangeLog) -> Any:
    """What an operation may change."""
    groups = {name: log.groups.open(name) for name in log.groups}
    return (
        {name: (log.slots.info(name).paused, log.slots.info(name).position) for name in log.slots},
        {
            name: (one.info().state, one.info().generation, len(one.dead.inspect()))
            for name, one in groups.items()
        },
    )


READS: Final = {"schema", "slot info", "slot list", "groups pending", "groups info", "groups dead"}
SAME: Final = {"slot resume", "groups resume", "groups release"}
"""They find nothing to do here."""


@pytest.mark.parametrize(("operation", "face"), PAIRS, ids=[f"{name_of(one)}-{face}" for one, face in PAIRS])
def test_who_is_allowed_has_it_done_and_who_is_not_is_told(place, log, operation, face):
    """F187, F88: by the action, and by the name of the slot or the group."""
    name, before = name_of(operation), state(log)
    ask = getattr(Asked(place.server.url, log.name), face)
    others = set(LogAction) - {operation.action, LogAction.OPERATE}
    names = {"slots": EVERY.slots, "groups": EVERY.groups} if LogAction.CONSUME in others else {}
    place.grants[log.name] = Grant(others, **names)
    assert ask(operation) == "FORBIDDEN"
    place.grants[log.name] = UNNAMED
    assert ask(operation) == ("OK" if name in ("schema", "slot list") else "FORBIDDEN")
    assert state(log) == before
    place.grants[log.name] = EVERY
    assert ask(operation) == "OK"
    assert (state(log) != before) is (name not in READS | SAME)


@pytest.mark.parametrize("operation", OPERATIONS, ids=IDS)
def test_a_follower_answers_what_the_table_says(place, log, operation, tmp_path):
    """F88, F187: the rest belongs to the owner, and the refusal says so."""
    before = state(log)
    with ChangeLog.open(log.path, read_only=True) as follower:
        server = serve({"shop": follower}, authorise=lambda *_: EVERY)
        try:
            told = Asked(server.url, "shop").websocket(operation)
        finally:
            server.stop()
    answers = operation.stored or operation.action is LogAction.READ
    assert told == ("OK" if answers else "LOG_READ_ONLY")
    assert state(log) == before


class RestSlot(SlotOperation, frozen=True, kw_only=True, tag="rest"):
    """Lets a slot rest."""

    def do(self, target: Target, /) -> Any:
        target.log.slots.pause(self.name)
        return target.log.slots.info(self.name)


@pytest.mark.parametrize("face", ["websocket", "python", "command"])
def test_a_new_operation_is_one_more_entry_of_the_table(place, log, monkeypatch, face):
    """F187: over each face, and for those who are allowed."""
    monkeypatch.setitem(SLOTS.operations, "rest", RestSlot)
    monkeypatch.setitem(SAMPLES, "slot rest", ({"name": "stock"}, ["stock"]))
    ask = getattr(Asked(place.server.url, log.name), face)
    place.grants[log.name] = UNNAMED
    assert ask(RestSlot) == "FORBIDDEN"
    assert not log.slots.info("stock").paused
    place.grants[log.name] = EVERY
    assert ask(RestSlot) == "OK"
    assert log.slots.info("stock").paused
