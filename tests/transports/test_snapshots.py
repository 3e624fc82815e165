"""The state first, then every change, over the WebSocket protocol: what is sent, what is refused, and what a client makes of it."""

import dataclasses
import json
from base64 import urlsafe_b64encode

import pytest

from publishers import ChangeLog, Content, Criteria, Criterion, Operation, Position, remove, upsert
from publishers.errors import PositionMalformed, SnapshotGone, StateIncomplete, StateUnusable
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotCursor, SnapshotEnd
from publishers.state.rows import RowPlace
from publishers.views.view import View
from tests.harness.constants import set_bounds, set_constant
from tests.harness.failing import failing
from tests.harness.inside import connection_of, link_of, socket_of
from tests.transports.server.test_change_driver import connect as linked
from tests.transports.server.test_change_driver import kinds, subscribe
from transports import Backoff, Grant, LogAction, RemoteError, connect
from transports.access.grant import check_rows
from transports.codec import snapshot_places
from transports.codec.replies import ChunkEndReply, SnapshotEndReply
from transports.codec.snapshot_places import opened, sealed
from transports.errors import Forbidden, Violation
from transports.problems import describe

ORDERS = [{"entity_types": ["order"]}]


@pytest.fixture
def log(tmp_path):
    set_bounds(state_interval=0.0)
    with ChangeLog.open(tmp_path / "shop", state=True, sync="os") as log:
        yield log


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    set_constant(monkeypatch, "publishers.snapshots.reader._ROWS", 2)


def put(log, *keys, **body):
    return log.commit([upsert("order", key, {"key": key, **body}) for key in keys]).version


async def ask(link, until, **payload):
    """Subscribes, and waits for the end of the snapshot."""
    subscribe(link, **{"criteria": ORDERS, "content": "BODY", "credits": 1000, "start": "state", **payload})
    await until(lambda: {"snapshot_end", "error"} & set(kinds(link)))


def sent(link):
    return [event for message in link.messages if message["type"] == "next" for event in message["events"]]


def shown(link):
    return [(event["operation"], event["key"]) for event in sent(link)]


async def test_rows_come_first_and_then_every_change(log, until):
    """F88, F93, F146: with the places in the snapshot on every row, and positions from its end on."""
    put(log, "1", "2", "3")
    link = linked(log)
    await ask(link, until)
    put(log, "4")
    await until(lambda: len(sent(link)) == 4)
    told = [kind for kind in kinds(link) if kind not in ("connection_ack", "checkpoint")]
    assert told == [
        "subscribed",
        "snapshot_begin",
        "next",
        "chunk_end",
        "next",
        "chunk_end",
        "snapshot_end",
        "next",
    ]
    by_kind = {message["type"]: message for message in link.messages}
    assert shown(link) == [("READ", "1"), ("READ", "2"), ("READ", "3"), ("UPSERT", "4")]
    row = sent(link)[0]
    assert (row["version"], row["index"], row["count"], row["entry_version"], row["body"]) == (
        2,
        0,
        0,
        1,
        {"key": "1"},
    )
    places = [event["cursor"] for event in sent(link)]
    assert [place.startswith("n1:") for place in places] == [True, True, True, False]
    assert by_kind["subscribed"]["cursor"].startswith("n1:")
    assert by_kind["snapshot_begin"]["snapshot"] == by_kind["snapshot_end"]["snapshot"]
    assert by_kind["snapshot_end"]["cursor"] == str(log.token(Position(2)))
    assert by_kind["chunk_end"]["cursor"] == places[2]
    nexts = [message for message in link.messages if message["type"] == "next"]
    assert [message["boundary"] for message in nexts] == [False, False, True]
    link.receiver.lost()


async def test_rows_and_changes_are_counted_against_the_credits(log, until):
    """F88: over the end of the rows too."""
    put(log, "1", "2", "3")
    link = linked(log)
    subscribe(link, criteria=ORDERS, start="state", credits=1, heartbeatMs=1)
    for count in range(1, 4):
        await until(lambda n=count: len(sent(link)) == n)
        seen = len(link.messages)
        await until(lambda n=seen: "checkpoint" in kinds(link)[n:])
        assert len(sent(link)) == count
        link.receiver.received(json.dumps({"type": "request", "id": "a", "n": 1}))
    await until(lambda: "snapshot_end" in kinds(link))
    put(log, "4", "5")
    await until(lambda: len(sent(link)) == 4)
    link.receiver.received(json.dumps({"type": "request", "id": "a", "n": 1}))
    await until(lambda: len(sent(link)) == 5)
    link.receiver.lost()


async def test_checkpoints_tell_the_place_in_the_snapshot(log, until):
    """F89: and that changes are not live yet."""
    put(log, "1", "2", "3")
    link = linked(log)
    subscribe(link, criteria=ORDERS, start="state", credits=1, heartbeatMs=1)
    await until(lambda: sent(link))
    seen = len(link.messages)
    await until(lambda: "checkpoint" in kinds(link)[seen:])
    (item,) = link.messages[-1]["items"]
    assert (item["cursor"], item["state"], item["live"]) == (sent(link)[0]["cursor"], "RESYNC", 1)
    assert item["head"] == str(log.token(log.head))
    link.receiver.received(json.dumps({"type": "request", "id": "a", "n": 9}))
    await until(lambda: link.messages[-1].get("items", [{}])[0].get("state") == "LIVE")
    assert link.messages[-1]["items"][0]["cursor"] == str(log.token(log.head))
    link.receiver.stop()
    assert link.messages[-1]["type"] == "error"


async def test_a_snapshot_goes_on_behind_any_row(log, until):
    """F89: what was sent is not sent again."""
    put(log, "1", "2", "3", "4")
    link = linked(log)
    await ask(link, until)
    places = [event["cursor"] for event in sent(link)]
    for count, place in enumerate(places, 1):
        subscribe(link, f"b{count}", criteria=ORDERS, since=place, credits=100, snapshot="initial_only")
        await until(lambda n=count: {"type": "complete", "id": f"b{n}"}.items() <= link.messages[-1].items())
        rows = [
            e for m in link.messages if m["type"] == "next" and m["id"] == f"b{count}" for e in m["events"]
        ]
        assert [row["key"] for row in rows] == ["1", "2", "3", "4"][count:]
    link.receiver.lost()


async def test_a_grant_narrows_rows_and_places_tell_nothing_of_the_others(log, until):
    """F88, F140: criteria, masks and what the text of a place holds."""
    put(log, "a1", "b1", "b2", "b3", "a2", card="4111")
    view = View.of(Content.BODY, mask={"card": "***"})
    grant = Grant(view=view, criteria=Criteria.of(Criterion(key_globs={"a*"})))
    link = linked(log, authorise=grant)
    await ask(link, until)
    log.commit([remove("order", "b1"), remove("order", "a1")])
    await until(lambda: len(sent(link)) == 3)
    assert shown(link) == [("READ", "a1"), ("READ", "a2"), ("REMOVE", "a1")]
    assert [event.get("body") for event in sent(link)[:2]] == [
        {"key": "a1", "card": "***"},
        {"key": "a2", "card": "***"},
    ]
    assert "chunk_end" not in kinds(link)  # they would tell how many rows there are
    told = json.dumps(link.messages)
    assert not any(urlsafe_b64encode(key).decode().rstrip("=") in told for key in (b"b1", b"b2", b"a1"))
    log.state.wait(log.visible)
    subscribe(link, "b", since=sent(link)[0]["cursor"], credits=9, snapshot="initial_only")
    await until(lambda: link.messages[-1]["type"] == "complete")
    again = [e for m in link.messages if m["type"] == "next" and m["id"] == "b" for e in m["events"]]
    assert [(event["operation"], event["key"]) for event in again] == [("REMOVE", "a1"), ("READ", "a2")]
    link.receiver.lost()


async def test_a_guess_at_a_hidden_row_is_not_confirmed(log, until):
    """F88, F140: what a client names itself is not told in the words that it got for a place."""
    put(log, "a1", "b1", "a2")
    link = linked(log, authorise=Grant(criteria=Criteria.of(Criterion(key_globs={"a*"}))))
    await ask(link, until)
    *_, row = sent(link)
    parts = row["cursor"].split(":", 3)
    guess = SnapshotCursor(parts[1], RowPlace("order", row["key"].encode()), log.token(Position(2, 0)))
    for name in ("b", "c"):
        subscribe(link, name, since=str(guess), credits=0)
        await until(
            lambda name=name: ("subscribed", name) in [(m["type"], m.get("id")) for m in link.messages]
        )
    told = [message["cursor"].split(":")[2] for message in link.messages if message["type"] == "subscribed"]
    assert len({parts[2], *told[1:]}) == 3
    link.receiver.lost()


async def test_a_grant_of_some_changes_gives_no_state(log, until):
    """F88, F140: what an entity is says nothing of how it came about."""
    put(log, "1")
    for wish in (
        Criterion(operations={Operation.REMOVE}),
        Criterion(changed="total"),
        Criterion(where="total > 3", transitions={"ENTERED"}),
    ):
        link = linked(log, authorise=Grant(criteria=Criteria.of(wish)))
        await ask(link, until)
        problem = link.messages[-1]["payload"]
        assert (problem["code"], problem["path"]) == ("FORBIDDEN", "start")
        link.receiver.lost()
    check_rows(Grant(criteria=Criteria.of(Criterion(operations={Operation.TRANSACTION}))))
    check_rows(Grant(criteria=Criteria.of(Criterion(operations={Operation.UPSERT}))))
    with pytest.raises(Forbidden):
        check_rows(Grant((LogAction.READ,), criteria=Criteria.of(Criterion(operations={Operation.EXPIRE}))))


async def test_what_cannot_be_is_told_by_name(log, until, tmp_path):
    """F88: and a start without the state asks for no rows."""
    link = linked(log)
    put(log, "1")

    async def refused(name, **payload):
        subscribe(link, name, **payload)
        await until(lambda: link.messages[-1].get("id") == name)
        return link.messages[-1]["payload"]["code"], link.messages[-1]["payload"].get("path")

    assert await refused("a", snapshot="initial_only") == ("INVALID_REQUEST", "snapshot")
    assert await refused("b", start="state", snapshot="twice") == ("INVALID_REQUEST", "snapshot")
    assert await refused("c", since="n1:nonsense") == ("CURSOR_INVALID", None)
    assert await refused("w", since="earliest") == ("CURSOR_INVALID", None)
    assert link.messages[-1]["payload"]["message"].endswith("as the place to begin, give it as start")
    assert await refused("d", since="n1:0123456789abcdef:~AA~:x") == ("CURSOR_INVALID", None)
    token = log.token(Position(1))
    for name in ("\n00000000000000a", "0x0000000000000a", " 0000000000_000a", "0123456789ABCDEF"):
        assert await refused(name, since=f"n1:{name}::{token}") == ("CURSOR_INVALID", None)
    strange = f"n1:0123456789abcdef:~{'A' * 44}:{token}"
    assert await refused("e", since=strange) == ("SNAPSHOT_GONE", None)
    assert link.messages[-1]["payload"]["oldest"] == str(log.token(log.oldest))
    link.receiver.lost()
    with ChangeLog.open(tmp_path / "other") as other:
        link = linked(other)
        assert await refused("a", start="state") == ("STATE_OFF", None)
        assert "--own --state" in link.messages[-1]["payload"]["message"]
        link.receiver.lost()


async def test_so_many_snapshots_of_a_connection_and_no_more(log, until):
    """F88: a bound with an error of its own; one that has ended counts no more."""
    put(log, "1")
    link = linked(log, snapshots=1)
    subscribe(link, "a", criteria=ORDERS, start="state")
    subscribe(link, "b", criteria=ORDERS, start="state")
    await until(lambda: link.messages[-1].get("id") == "b")
    problem = link.messages[-1]["payload"]
    assert (problem["code"], problem["limit"], problem["retryable"]) == ("TOO_MANY_SNAPSHOTS", 1, True)
    link.receiver.received(json.dumps({"type": "request", "id": "a", "n": 9}))
    await until(lambda: log.statistics().publishers)
    subscribe(link, "b", criteria=ORDERS, start="state", credits=1)
    await until(lambda: kinds(link).count("snapshot_end") == 2)
    link.receiver.lost()


async def test_heavy_criteria_are_read_and_compiled_off_the_loop(log, until):
    """F88: for the rows, and for what follows them."""
    put(log, "1", "2", "x")
    link = linked(log, inline_weight=1)
    await ask(link, until, criteria=[{"keys": ["1", "2", "3"]}])
    put(log, "3", "4")
    await until(lambda: len(sent(link)) == 3)
    assert shown(link) == [("READ", "1"), ("READ", "2"), ("UPSERT", "3")]
    link.receiver.lost()


async def test_one_who_leaves_in_the_middle_leaves_nothing_behind(log, until):
    """F72, F88."""
    put(log, "1", "2", "3")
    link = linked(log)
    subscribe(link, criteria=ORDERS, start="state", credits=1)
    await until(lambda: sent(link))
    assert [one.name.split()[0] for one in log.statistics().holds if "snapshot" in one.name] == ["snapshot"]
    link.receiver.received(json.dumps({"type": "complete", "id": "a"}))
    await until(lambda: not [one for one in log.statistics().holds if "snapshot" in one.name])
    assert "snapshot_end" not in kinds(link)
    link.receiver.lost()


async def test_a_log_that_closes_ends_the_snapshot_with_the_place_in_it(log, until):
    """F88, F89."""
    put(log, "1", "2", "3")
    link = linked(log)
    subscribe(link, criteria=ORDERS, start="state", credits=1)
    await until(lambda: sent(link))
    log.close()
    await until(lambda: "error" in kinds(link))
    problem = link.messages[-1]["payload"]
    assert (problem["code"], problem["cursor"]) == ("LOG_CLOSED", sent(link)[0]["cursor"])
    link.receiver.lost()


async def test_a_row_that_cannot_be_encoded_ends_that_subscription(log, until, monkeypatch):
    put(log, "1")
    link = linked(log)

    failing(monkeypatch, "transports.server.change_driver.encode_change", RuntimeError("a secret"))
    subscribe(link, criteria=ORDERS, start="state", credits=1)
    await until(lambda: "error" in kinds(link))
    assert link.messages[-1]["payload"]["code"] == "INTERNAL"
    assert link.closed is None
    link.receiver.lost()


def test_errors_of_the_state_have_names():
    """F88."""
    told = describe(StateIncomplete(Position(7)), str)
    assert (told.code, told.data, told.retryable) == ("STATE_INCOMPLETE", {"since": "7:0"}, False)
    told = describe(StateUnusable("/secret/place", "damaged"), str)
    assert (told.code, told.retryable) == ("STATE_UNUSABLE", True)
    assert "secret" not in told.message


def test_a_sealed_place_comes_back_as_it_went_and_cannot_be_made(log, monkeypatch):
    """F89, F140."""
    token = log.token(Position(5))
    oldest = Position(1)
    for key in (b"", b"1", b"\xff" * 300):
        place = SnapshotCursor("0123456789abcdef", RowPlace("order", key), token)
        text = sealed(place)
        assert opened(text, oldest) == str(place)
        assert sealed(place) != text  # lest a guess could be confirmed
        assert "~" in text
        assert len(sealed(place)) == len(sealed(place._replace(last=RowPlace("orders", key))))
        with pytest.raises(SnapshotGone):
            opened(text.replace("0123456789abcdef", "1123456789abcdef"), oldest)
    first = SnapshotCursor("0123456789abcdef", None, token)
    assert sealed(first) == str(first)
    assert opened(str(place), oldest) == str(place)
    set_constant(monkeypatch, snapshot_places, "_KEY", b"another process")
    with pytest.raises(SnapshotGone):
        opened(text, oldest)


# The Python client.


class Reader:
    """Notes rows, changes and signals in order."""

    def __init__(self, demand=1000):
        self.heard, self.first, self.error, self.done = [], demand, None, False

    def on_subscribe(self, subscription):
        self.subscription = subscription
        subscription.request(self.first)

    def on_next(self, change):
        self.heard.append(change)

    def on_snapshot(self, signal):
        self.heard.append(signal)

    def on_error(self, error):
        self.error = error

    def on_complete(self):
        self.done = True

    @property
    def told(self):
        return [getattr(one, "key", type(one).__name__) for one in self.heard]


async def test_the_client_gives_rows_signals_and_changes_in_their_order(log, serving, until):
    """F88, F93, F146."""
    put(log, "1", "2", "3")
    async with connect(serving().url) as remote:
        reader = Reader()
        wish = Criterion(entity_types={"order"})
        remote.changes(wish, since="state", content=Content.BODY).subscribe(reader)
        await until(lambda: "SnapshotEnd" in reader.told)
        assert reader.subscription.cursor == str(log.token(Position(2)))
        put(log, "4")
        await until(lambda: "4" in reader.told)
        assert reader.told == ["SnapshotBegin", "1", "2", "ChunkEnd", "3", "ChunkEnd", "SnapshotEnd", "4"]
        rows = [one for one in reader.heard if getattr(one, "operation", None) is Operation.READ]
        assert [(row.body, row.position, row.after, row.entry_version) for row in rows] == [
            ({"key": key}, Position(2), Position(2), 1) for key in "123"
        ]
        assert rows[0].idempotency_key == str(log.idempotency_key(rows[0]))
        begin, end = reader.heard[0], reader.heard[6]
        assert begin == SnapshotBegin(end.snapshot, Position(2))
        assert end == SnapshotEnd(begin.snapshot, Position(2))
        assert reader.heard[3] == ChunkEnd(rows[1].cursor)


async def test_the_client_goes_on_in_a_snapshot_on_a_new_connection(log, serving, until):
    """F39, F89: exactly, wherever the connection is lost."""
    put(log, *"123456789")
    async with connect(serving().url, reconnect=Backoff(first=0.01)) as remote:
        reader = Reader(demand=1)
        remote.changes(Criterion(entity_types={"order"}), since="state", window=1).subscribe(reader)
        for count in range(1, 10):
            await until(lambda n=count: sum(hasattr(one, "key") for one in reader.heard) == n)
            put(log, f"z{count}")
            if count % 3 == 1:
                socket_of(connection_of(link_of(remote))).transport.abort()
            reader.subscription.request(1)
        reader.subscription.request(100)

        def keys(operation):
            return [one.key for one in reader.heard if getattr(one, "operation", None) is operation]

        await until(lambda: "SnapshotEnd" in reader.told and "z9" in keys(Operation.UPSERT))
        assert [key for key in keys(Operation.READ) if key.isdigit()] == list("123456789")
        assert keys(Operation.UPSERT) == [f"z{count}" for count in range(1, 10)]
        assert reader.error is None


async def test_the_client_may_want_the_rows_only(log, serving, until):
    """F90."""
    put(log, "1", "2")
    async with connect(serving().url) as remote:
        reader = Reader()
        remote.changes(since="state", snapshot="initial_only").subscribe(reader)
        await until(lambda: reader.done)
        assert [key for key in reader.told if key.isdigit()] == ["1", "2"]
        again = [change.key async for change in remote.changes(since="state", snapshot="initial_only")]
        assert again == ["1", "2"]
        with pytest.raises(RemoteError, match="INVALID_REQUEST"):
            async for _ in remote.changes(since="earliest", snapshot="initial_only"):
                pass


async def test_rows_are_objects_of_a_class_too(log, serving):
    """F88."""

    @dataclasses.dataclass
    class Order:
        key: str

    put(log, "1")
    async with connect(serving().url) as remote:
        feed = remote.changes(since="state", snapshot="initial_only", as_=Order)
        assert [change.body async for change in feed] == [Order("1")]


def test_a_reply_that_names_no_place_is_refused():
    with pytest.raises(Violation):
        SnapshotEndReply("a", "0123456789abcdef", "nonsense").signal()
    assert ChunkEndReply("a", "anything").signal().cursor == "anything"
    with pytest.raises(PositionMalformed):
        opened("n1:x::y", Position(1)) and SnapshotCursor.parse("n1:x::y")
