"""One way to read for each transport: what is asked is the same, and so is what comes of it."""

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import websockets

from flow.bridges.iterators import aiter as iterate
from publishers import Content, Criteria, Images
from transports import connect

FIELDS = "version index area operation entityType key body before meta schemaVersion"
ARGUMENTS = "log: $log, criteria: $criteria, images: $images"
PARAMETERS = "$log: String, $criteria: [Criterion!], $images: Images!"
FOLLOW = f"""subscription ({PARAMETERS}, $until: Long) {{
  onChange({ARGUMENTS}, start: {{place: EARLIEST}}, until: $until) {{ {FIELDS} }}
}}"""
PAGE = f"query ({PARAMETERS}) {{ history({ARGUMENTS}, limit: 1000) {{ changes {{ {FIELDS} }} }} }}"
DEADLINE = 120.0


class Seen(msgspec.Struct, rename={"entity_type": "entityType", "schema_version": "schemaVersion"}):
    """An event as it came; images and annotations are the text that they were."""

    version: int
    index: int
    area: str
    operation: str
    entity_type: str | None = None
    key: str | None = None
    body: msgspec.Raw = msgspec.Raw(b"null")
    before: msgspec.Raw = msgspec.Raw(b"null")
    meta: msgspec.Raw = msgspec.Raw(b"null")
    schema_version: int | None = None

    @property
    def texts(self) -> tuple[bytes, bytes, bytes]:
        return bytes(self.body), bytes(self.before), bytes(self.meta)


class Wish(NamedTuple):
    """What is read: everything up to a version."""

    until: int
    criteria: Criteria = Criteria.of()
    log: str | None = None
    images: Images = Images.WRITTEN


@asynccontextmanager
async def dialled(url: str, subprotocol: str) -> Any:
    async with websockets.connect(
        url,
        subprotocols=[subprotocol],
        proxy=None,
        compression=None,
        max_size=None,
        open_timeout=DEADLINE,
        close_timeout=1,
    ) as socket:
        await socket.send('{"type":"connection_init"}')
        assert json.loads(await socket.recv())["type"] == "connection_ack"
        yield socket


async def over_our_protocol(server: Any, wish: Wish) -> list[Seen]:
    payload = {
        "criteria": wish.criteria.to_json() or None,
        "log": wish.log,
        "start": "earliest",
        "until": wish.until,
        "content": "BODY",
        "images": wish.images.value,
        "credits": 10_000,
    }
    found: list[Seen] = []
    async with dialled(server.url, "penstock.v1+json") as socket:
        await socket.send(json.dumps({"type": "subscribe", "id": "a", "payload": payload}))
        while (text := await asyncio.wait_for(socket.recv(), DEADLINE)) and '"complete"' not in text[:40]:
            if '"next"' in text[:40]:
                found += _events(text)
    return found


class _Next(msgspec.Struct):
    events: list[dict[str, msgspec.Raw]]


def _events(text: str) -> list[Seen]:
    names = {"entity_type": "entityType", "schema_version": "schemaVersion"}
    return [
        _seen({names.get(name, name): value for name, value in event.items()})
        for event in msgspec.json.decode(text, type=_Next).events
    ]


def _seen(event: dict[str, msgspec.Raw]) -> Seen:
    """An event with numbers that may have travelled as text."""
    raw = {"body", "before", "meta"}
    kept = {name: value for name, value in event.items() if name in Seen.__struct_encode_fields__}
    plain = {name: value if name in raw else msgspec.json.decode(value) for name, value in kept.items()}
    for name in ("version", "schemaVersion"):
        plain[name] = None if plain.get(name) is None else int(plain[name])
    return Seen(
        **{
            {"entityType": "entity_type", "schemaVersion": "schema_version"}.get(name, name): value
            for name, value in plain.items()
        }
    )


async def by_our_client(server: Any, wish: Wish) -> list[Seen]:
    async with connect(server.url) as remote:
        feed = remote.changes(
            wish.criteria,
            since="earliest",
            until=wish.until,
            content=Content.BODY,
            images=wish.images,
            log=wish.log,
        )
        async with iterate(feed) as changes:
            return [
                Seen(
                    change.version,
                    change.index,
                    change.area.name,
                    change.operation.name,
                    change.entity_type,
                    change.key,
                    msgspec.Raw(change.body_bytes or b"null"),
                    msgspec.Raw(change.before_bytes or b"null"),
                    msgspec.Raw(change.meta_bytes or b"null"),
                    change.schema_version,
                )
                async for change in changes
            ]


def _variables(wish: Wish) -> dict[str, Any]:
    criteria = [
        {_camel(name): value for name, value in criterion.items()} for criterion in wish.criteria.to_json()
    ]
    return {"log": wish.log, "criteria": criteria or None, "images": wish.images.name}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class _Change(msgspec.Struct, rename="camel"):
    on_change: dict[str, msgspec.Raw]


class _Data(msgspec.Struct):
    data: _Change


class _Payload(msgspec.Struct):
    payload: _Data


async def over_graphql(server: Any, wish: Wish) -> list[Seen]:
    found: list[Seen] = []
    url = server.graphql_url.replace("http:", "ws:")
    async with dialled(url, "graphql-transport-ws") as socket:
        payload = {"query": FOLLOW, "variables": _variables(wish) | {"until": wish.until}}
        await socket.send(json.dumps({"type": "subscribe", "id": "a", "payload": payload}))
        while (text := await asyncio.wait_for(socket.recv(), DEADLINE)) != '{"id":"a","type":"complete"}':
            if '"ping"' in text[:20]:
                await socket.send(text.replace("ping", "pong"))
            else:
                found.append(_seen(msgspec.json.decode(text, type=_Payload).payload.data.on_change))
    return found


class _Page(msgspec.Struct):
    changes: list[dict[str, msgspec.Raw]]


class _History(msgspec.Struct):
    history: _Page


class _Answer(msgspec.Struct):
    data: _History


def _page(text: bytes | str, wish: Wish) -> list[Seen]:
    changes = msgspec.json.decode(text, type=_Answer).data.history.changes
    return [event for event in map(_seen, changes) if event.version <= wish.until]


async def page_over_a_web_socket(server: Any, wish: Wish) -> list[Seen]:
    url = server.graphql_url.replace("http:", "ws:")
    async with dialled(url, "graphql-transport-ws") as socket:
        payload = {"query": PAGE, "variables": _variables(wish)}
        await socket.send(json.dumps({"type": "subscribe", "id": "a", "payload": payload}))
        text = await asyncio.wait_for(socket.recv(), DEADLINE)
    return _page(bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])["payload"]), wish)


async def _fetched(request: urllib.request.Request) -> bytes:
    def work() -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=DEADLINE) as answer:
            return answer.read()

    return await asyncio.to_thread(work)


async def page_by_post(server: Any, wish: Wish) -> list[Seen]:
    body = json.dumps({"query": PAGE, "variables": _variables(wish)}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/graphql-response+json"}
    return _page(await _fetched(urllib.request.Request(server.graphql_url, body, headers)), wish)


async def page_by_get(server: Any, wish: Wish) -> list[Seen]:
    asked = urllib.parse.urlencode({"query": PAGE, "variables": json.dumps(_variables(wish))})
    return _page(await _fetched(urllib.request.Request(f"{server.graphql_url}?{asked}")), wish)


Reader = Callable[[Any, Wish], Awaitable[list[Seen]]]
READERS: list[Reader] = [
    over_our_protocol,
    by_our_client,
    over_graphql,
    page_over_a_web_socket,
    page_by_post,
    page_by_get,
]
EACH = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
