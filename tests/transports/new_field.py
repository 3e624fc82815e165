"""A program with fields that a change does not have: the table has four lines more, and nothing else of the product is another.

``python -m tests.transports.new_field DIRECTORY`` takes them the whole way, and prints as JSON what each face has told of them.
"""

import asyncio
import importlib.machinery
import io
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType
from typing import Any

TABLE = "publishers.model.fields"
END = "\n\nclass Given(TypedDict"
LINES = """    urgency: Annotated[int | None, Field(FieldKind.NUMBER, "How urgent it is.", _META, given=True, kept=True)] = None
    region: Annotated[str | None, Field(FieldKind.TEXT, "Where it counts.", _META, given=True, kept=True)] = None
    due: Annotated[datetime | None, Field(FieldKind.MOMENT, "When it is due.", _META, given=True, kept=True, always=False)] = None
    parent: Annotated[str | None, Field(FieldKind.KEY, "Of what it is a part.", _META, given=True, kept=True, always=False)] = None
"""
SAID = {"urgency": 2**53 + 1, "region": "rome", "due": datetime(2026, 3, 1, 12, tzinfo=UTC), "parent": "a b"}
NAMES = tuple(SAID)


class _Longer(importlib.machinery.SourceFileLoader):
    """Loads the table with further lines."""

    def get_code(self, fullname: str) -> CodeType:
        """Compiles the text with the further lines, instead of what is cached."""
        before, end, behind = Path(self.path).read_text().partition(END)
        assert end
        return compile(before + LINES + end + behind, self.path, "exec")


class _Finder:
    """Finds the table."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Has the table loaded with further lines, and any other module as it is."""
        if name != TABLE:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert found is not None
        assert found.origin is not None
        found.loader = _Longer(name, found.origin)
        return found


def plain(value: Any) -> Any:
    """A value as it is compared: moments and whole numbers as texts, whatever a face makes of them."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC).isoformat()
    if isinstance(value, str) and value[:4] == "2026":
        value = value.replace("Z", "+00:00").replace(".000000", "")
    return str(value) if isinstance(value, int) else value


def of(told: Any) -> dict[str, Any]:
    """The new fields of an object, or of a mapping."""
    read = told.get if isinstance(told, dict) else lambda name: getattr(told, name, None)
    return {name: plain(read(name)) for name in NAMES}


def posted(url: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        url.replace("ws:", "http:").removesuffix("/ws") + path,
        json.dumps(body, default=str).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


SCRIPT = """
import { connect } from "./penstock.js";
const client = connect(process.argv[2]);
const feed = client.changes({ start: "earliest", until: 1, integers: "TEXT", criteria: [{ entity_types: ["order"] }] });
for await (const event of feed) console.log(JSON.stringify(event));
process.exit(0);
"""


def javascript(url: str, place: Path) -> Any:
    """What penstock.js makes of it; None without Node."""
    if shutil.which("node") is None:
        return None
    place.mkdir()
    shutil.copy(Path(__file__).parents[2] / "transports" / "browser" / "penstock.js", place)
    (place / "package.json").write_text('{"type": "module"}')
    (place / "read.mjs").write_text(SCRIPT)
    command = ["node", "--no-warnings", "--experimental-websocket", str(place / "read.mjs"), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout.splitlines()[0])


async def clients(url: str) -> dict[str, Any]:
    """What comes over a WebSocket, and what it takes."""
    from flow import aiter as iterate
    from publishers import Content, Criterion, upsert
    from transports import connect

    async with connect(url) as client:
        await client.commit_async([upsert("order", "2", {"n": 2}, **SAID)])
        feed = client.changes(
            Criterion(entity_types={"order"}), since="earliest", until=2, content=Content.BODY
        )
        async with iterate(feed) as changes:
            found = [change async for change in changes]
    return {"web socket": found[0], "python client's append": found[1]}


def served(log: Any, place: Path) -> Iterator[tuple[str, Any]]:
    """What the faces of a server tell, and what they take."""
    from publishers.spark.source import ChangeSource
    from tests.transports.server.test_appending import WRITERS
    from tests.transports.test_event_model import over_graphql
    from transports import serve

    def past(version: int) -> Any:
        return next(
            change for change in log.history(since="earliest").changes if change.position == (version, 1)
        )

    with serve(log, port=0, authorise=WRITERS) as server:
        yield from asyncio.run(clients(server.url)).items()
        said = {name: plain(value) for name, value in SAID.items()}
        posted(
            server.url,
            "/changes",
            {
                "changes": [
                    {"entity_type": "order", "key": "3", "body": {}, **said, "urgency": SAID["urgency"]}
                ]
            },
        )
        yield "POST /changes", past(3)
        selected = " ".join(NAMES)
        query = f"{{ history {{ changes {{ entityType {selected} }} }} }}"
        told = posted(server.url, "/graphql", {"query": query})["data"]["history"]["changes"]
        yield "graphql", next(event for event in told if event["entityType"] == "order")
        query = "mutation ($changes: [ChangeInput!]!) { append(changes: $changes) { version } }"
        one = {"entityType": "order", "key": "4", "body": {}, **said}
        posted(server.url, "/graphql", {"query": query, "variables": {"changes": [one]}})
        yield "graphql's append", past(4)
        told = over_graphql(log, f"entityType {selected}")
        yield "graphql's subscription", next(event for event in told if event["entityType"] == "order")
        yield "penstock.js", javascript(server.url, place / "node")
        for name, where in (("spark, of a server", server.url), ("spark", str(place / "log"))):
            source = ChangeSource({"path": where})
            reader = source.reader(source.schema())
            rows = [
                row
                for part in reader.partitions()
                for batch in reader.read(part)
                for row in batch.to_pylist()
            ]
            yield name, json.loads(next(row["attached"] for row in rows if row["entity_type"] == "order"))


def sunk(log: Any) -> Iterator[tuple[str, Any]]:
    """What sinks send, in the formats that tell of every field."""
    import msgspec

    from publishers import Content
    from publishers.views.view import View
    from tests.transports.faces import context
    from transports.codec.changes import read_lines
    from transports.sinks.formats import RECORDS, WebhookSource
    from transports.sinks.stream import lines_of

    change = next(
        change for change in log.history(since="earliest", content=Content.BODY).changes if change.index
    )
    told = context(View(Content.BODY))
    for name, make in RECORDS.items():
        record = json.loads(msgspec.json.encode(make(change, told, WebhookSource())))
        yield name, record.get("data", record)
    batch = type("Batch", (), {"changes": [change], "gap": None})
    line = lines_of(batch, told)  # type: ignore[arg-type]  # of a batch it needs no more
    yield "lines", json.loads(line)
    (again,) = read_lines([line])
    yield "a line that is read", json.loads(again.meta)


def faces(place: Path) -> Iterator[tuple[str, Any]]:
    """Each face and what it told of a change with the new fields."""
    from publishers import ChangeLog, Content, upsert
    from publishers.mutations.mutation import copied
    from transports.cli.program import main

    with ChangeLog.open(place / "log", state=True) as log:
        log.commit([upsert("order", "1", {"n": 1}, **SAID)])
    with ChangeLog.open(place / "log", state=True) as log:
        change = next(change for change in log.history(since="earliest").changes if change.index)
        yield "history", change
        log.state.wait(log.visible)
        yield "state", log.state.get("order", "1")
        yield from served(log, place)
        yield from sunk(log)
        with ChangeLog.open(place / "replica") as replica:
            replica.commit([copied(log.history(content=Content.BODY, since="earliest").changes[1])])
            yield "replica", replica.history(since="earliest").changes[1]
    for name, command in (
        ("penstock state", ["state", "get", "--json", str(place / "log"), "order", "1"]),
        (
            "penstock tail",
            ["tail", "--since", "earliest", "--until", "1", "--entity-type", "order", str(place / "log")],
        ),
    ):
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())) as printed:
            main(command)
            printed.flush()
        yield name, json.loads(printed.buffer.getvalue())


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]  # it finds modules, and that is all
    told = {name: None if found is None else of(found) for name, found in faces(Path(sys.argv[1]))}
    sys.stdout.write(json.dumps(told, default=str))
