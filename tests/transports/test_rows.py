"""Rows of other sources than the state, in place of a gap, and once more, over the WebSocket protocol and by its clients."""

import json

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, Content, Criteria, Criterion, Operation, PageSource, Position, upsert
from publishers.errors import TooCostly
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotEnd
from tests.harness.constants import set_bounds
from tests.harness.inside import connection_of, link_of, socket_of
from tests.publishers.movement import RETAIN, prune
from tests.publishers.support import QUICK
from tests.transports.server.test_change_driver import connect as linked
from tests.transports.server.test_change_driver import kinds, say, subscribe
from tests.transports.test_snapshots import Reader, put, sent, shown
from transports import Backoff, Grant, RemoteError, connect
from transports.codec.again import AgainRequest
from transports.errors import InvalidRequest, Violation
from transports.protocol.client_subscription import ClientSubscription

ORDER = Criterion(entity_types={"order"})
ORDERS = [{"entity_types": ["order"]}]


def table(rows, kind="order", **how):
    """A source of rows that stand in a mapping, by text of keys."""

    def pages(request):
        found = sorted(key for key in rows if (request.after or "") < key <= (request.until or "~"))
        return [(key, rows[key]) for key in found[: request.limit]]

    return PageSource(entity_type=kind, pages=pages, **how)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", **{**QUICK, **RETAIN}) as log:
        log.snapshots_from(
            table({str(n): {"n": n} for n in range(1, 8)}, page_rows=2), table({"a": {}}, "other")
        )
        yield log


def ended(link, times=1):
    return kinds(link).count("snapshot_end") >= times


async def begin(link, until, **payload):
    before = len(link.messages)
    wish = {"criteria": ORDERS, "content": "BODY", "credits": 1000, "start": "state", **payload}
    subscribe(link, **wish)
    await until(lambda: {"subscribed", "error"} & set(kinds(link)[before:]))


def again(link, name="a", **payload):
    say(link, type="again", id=name, payload=payload)


async def test_rows_come_from_the_sources_that_the_log_names(log, until):
    """F88, F90: no client has to name them; rows only, too."""
    link = linked(log)
    await begin(link, until)
    await until(lambda: ended(link))
    log.commit([upsert("order", "9", {})])
    await until(lambda: len(sent(link)) == 8)
    assert shown(link) == [("READ", str(n)) for n in range(1, 8)] + [("UPSERT", "9")]
    assert sent(link)[6]["body"] == {"n": 7}
    subscribe(link, "b", since=sent(link)[4]["cursor"], credits=9, snapshot="initial_only", criteria=ORDERS)
    await until(lambda: kinds(link)[-1] == "complete")
    # The place of the rest is behind what the first one was given.
    assert [event["key"] for event in sent(link)[8:]] in (["6", "7", "9"], ["9", "6", "7"])
    link.receiver.lost()


def test_the_sources_of_a_log_are_checked_and_can_be_taken_back(log):
    for wrong in ((3,), (table({}), table({}))):
        with pytest.raises(InvalidOption, match="source"):
            log.snapshots_from(*wrong)
    log.snapshots_from()
    with pytest.raises(Exception, match="state=True"):
        log.changes(since="state")


async def test_rows_come_again_while_changes_go_on(log, until):
    """F91: of types and of ranges of keys; their beginning tells which ones they are."""
    link = linked(log)
    await begin(link, until, criteria=[{"areas": ["DATA"]}])
    await until(lambda: ended(link))
    log.commit([upsert("order", "9", {})])
    await until(lambda: shown(link)[-1] == ("UPSERT", "9"))
    before = len(sent(link))
    again(link, criteria=ORDERS, after="2", until="5")
    again(link, criteria=[{"entity_types": ["other"]}])
    await until(lambda: ended(link, 3))
    assert shown(link)[before:] == [("READ", "3"), ("READ", "4"), ("READ", "5"), ("READ", "a")]
    begins = [one for one in link.messages if one["type"] == "snapshot_begin"]
    assert [one.get("asked") for one in begins] == [None, 1, 2]
    assert len({one["snapshot"] for one in begins}) == 3
    assert all(event["cursor"].startswith("n1:") for event in sent(link)[before:])
    log.commit([upsert("order", "10", {})])
    await until(lambda: shown(link)[-1] == ("UPSERT", "10"))
    assert sent(link)[-1]["cursor"] == str(log.token(log.head))
    say(link, type="complete", id="a")
    await until(lambda: not log.statistics().holds)
    link.receiver.lost()


async def test_ranges_without_rows_may_be_asked_for_as_often_as_one_likes(log, until):
    """F91: one after the other, on an idle log."""
    link = linked(log)
    await begin(link, until)
    await until(lambda: ended(link))
    for number in range(1, 31):
        again(link, criteria=ORDERS, after="8", until="9")
        await until(lambda number=number: ended(link, number + 1))
    assert "error" not in kinds(link)
    begins = [one for one in link.messages if one["type"] == "snapshot_begin"]
    assert [one.get("asked") for one in begins] == [None, *range(1, 31)]
    log.commit([upsert("order", "9", {})])
    await until(lambda: shown(link)[-1] == ("UPSERT", "9"))
    link.receiver.lost()


async def test_rows_can_be_asked_for_where_none_came_first(log, until):
    """F91: one that goes on behind the rows that it had, over a lost connection for example."""
    put(log, "1")
    link = linked(log)
    await begin(link, until, start={"version": 1}, snapshot="initial")
    await until(lambda: shown(link))
    again(link, until="2")
    await until(lambda: {"error", "snapshot_end"} & set(kinds(link)))
    assert link.messages[-1]["payload"]["path"] == "criteria"  # keys are of one entity type
    await begin(link, until, start={"version": 1}, snapshot="initial")
    again(link, criteria=ORDERS, until="2")
    await until(lambda: ended(link))
    assert [key for operation, key in shown(link) if operation == "READ"] == ["1", "2"]
    link.receiver.lost()


async def test_rows_come_in_place_of_history_that_is_missing(log, until):
    """F90, F92: wherever it begins, and a kept place in rows is no exception."""
    old = str(log.token(Position(1)))
    put(log, "1")
    prune(log)
    link = linked(log)
    gone = f"n1:0123456789abcdef::{old}"
    for times, place in enumerate(({"since": old}, {"start": {"version": 1}}, {"since": gone}), 1):
        subscribe(link, "a", criteria=ORDERS, credits=1000, snapshot="on_gap", **place)
        await until(lambda times=times: ended(link, times))
        assert [event["operation"] for event in sent(link)[-7:]] == ["READ"] * 7
        told = [one for one in link.messages if one["type"] in ("subscribed", "snapshot_begin")][-2:]
        assert [one["type"] for one in told] == ["subscribed", "snapshot_begin"]
        assert told[0]["cursor"]
        assert "asked" not in told[1]
        say(link, type="complete", id="a")
    assert "error" not in kinds(link)
    link.receiver.lost()


async def test_so_many_may_be_given_rows_at_a_time(log, until):
    """F90, F91: of a connection, and so often may one ask for more, whatever brings the rows."""
    link = linked(log, snapshots=1)
    await begin(link, until, credits=1)
    await until(lambda: shown(link))
    again(link)
    again(link)
    await until(lambda: "error" in kinds(link))
    assert link.messages[-1]["payload"] == {
        "code": "TOO_MANY_SNAPSHOTS",
        "message": link.messages[-1]["payload"]["message"],
        "retryable": True,
        "limit": 1,
    }
    subscribe(link, "b", criteria=ORDERS, credits=9, start="earliest", snapshot="on_gap")
    subscribe(link, "c", criteria=ORDERS, credits=1, start="state")
    await until(lambda: len(shown(link)) == 2)
    again(link, "b")
    await until(lambda: kinds(link)[-1] == "error")
    assert (link.messages[-1]["id"], link.messages[-1]["payload"]["code"]) == ("b", "TOO_MANY_SNAPSHOTS")
    link.receiver.lost()


@pytest.mark.parametrize(
    ("payload", "code", "path"),
    [
        ({"criteria": 3}, "INVALID_CRITERIA", "criteria"),
        ({"after": 3}, "INVALID_REQUEST", "after"),
        ({"until": ""}, "INVALID_CHANGE", "until"),
        ({"after": "1"}, "INVALID_REQUEST", "criteria"),
        ({"criteria": [{"key_globs": [f"x{n}*" for n in range(900)]}]}, "TOO_COSTLY", None),
        ({"criteria": [{"key_patterns": ["a[bc]{200}"]}]}, "TOO_COSTLY", None),
    ],
)
async def test_what_is_wrong_with_asking_again_ends_that_subscription_only(log, until, payload, code, path):
    """F91."""
    link = linked(log, inline_weight=1000)
    await begin(link, until)
    again(link, **payload)
    await until(lambda: "error" in kinds(link))
    error = next(one for one in link.messages if one["type"] == "error")["payload"]
    assert (error["code"], error.get("path")) == (code, path)
    await begin(link, until)
    await until(lambda: ended(link))
    link.receiver.lost()


async def test_asking_again_needs_a_subscription_that_takes_rows(log, until):
    """F91: one that has ended is none of the client's mistakes; one that is not answered yet is."""
    link = linked(log)
    again(link, "nobody")
    await begin(link, until, start="latest")
    again(link, "a")
    await until(lambda: "error" in kinds(link))
    assert "snapshot initial or on_gap" in link.messages[-1]["payload"]["message"]
    link.paused = True
    subscribe(link, "b", criteria=ORDERS, credits=5, start="state")
    again(link, "b")
    assert "subscribed was sent" in link.messages[-1]["payload"]["message"]
    assert link.messages[-1]["id"] == "b"
    for place, wrong in (({"start": "state"}, {"snapshot": "never"}), ({}, {"snapshot": "initial_only"})):
        subscribe(link, "c", criteria=ORDERS, **place, **wrong)
        assert link.messages[-1]["payload"]["path"] == "snapshot"
    subscribe(link, "c", criteria=ORDERS, snapshot="on_gap", onGap="jump")
    assert link.messages[-1]["payload"]["path"] == "onGap"
    say(
        link,
        type="subscribe",
        id="c",
        payload={"slot": {"name": "stock"}, "credits": 0, "snapshot": "initial"},
    )
    assert link.messages[-1]["payload"]["path"] == "snapshot"
    link.receiver.lost()


async def test_a_grant_narrows_rows_that_come_again(log, until):
    """F91: in what they are, in what may be asked about them, and in where they may come at all."""
    allowed = Criteria.of(Criterion(entity_types={"order"}, key_globs={"[1-4]", "1", "2", "3"}))
    link = linked(log, authorise=Grant(criteria=allowed))
    await begin(link, until, criteria=[])
    await until(lambda: ended(link))
    again(link)
    await until(lambda: ended(link, 2))
    assert shown(link) == [("READ", str(n)) for n in range(1, 4)] * 2
    assert all("~" in event["cursor"] for event in sent(link))
    link.receiver.lost()
    removed = Grant(criteria=Criteria.of(Criterion(operations={"REMOVE"})))
    link = linked(log, authorise=removed)
    for mode in ("initial", "on_gap"):
        subscribe(link, "a", criteria=ORDERS, snapshot=mode)
        assert link.messages[-1]["payload"]["code"] == "FORBIDDEN"
    link.receiver.lost()


async def test_a_range_of_keys_is_not_asked_of_who_may_not_see_keys(log, until):
    from publishers.views.view import View

    link = linked(log, authorise=Grant(view=View.of(Content.BODY, mask={"$key": "***"})))
    await begin(link, until)
    await until(lambda: ended(link))
    again(link, criteria=ORDERS, after="3")
    await until(lambda: "error" in kinds(link))
    assert link.messages[-1]["payload"]["code"] == "FORBIDDEN"
    link.receiver.lost()


# The client.


async def test_the_client_asks_again_over_lost_connections(log, serving, until):
    """F39, F91: what had not begun is asked for anew; what had goes on; numbers are those that it was told."""
    async with connect(serving().url, reconnect=Backoff(first=0.01)) as remote:
        reader = Reader()
        remote.changes(since="state", content=Content.BODY).subscribe(reader)
        await until(lambda: hasattr(reader, "subscription"))
        first = reader.subscription.refresh(
            Criterion(entity_types={"other"})
        )  # maybe before the server has answered
        assert first == 1
        await until(lambda: reader.told.count("SnapshotEnd") == 2)
        socket_of(connection_of(link_of(remote))).transport.abort()
        assert reader.subscription.refresh(ORDER, after="5") == 2
        await until(lambda: reader.told.count("SnapshotEnd") == 3, lambda: reader.told)
        last = len(reader.told) - reader.told[::-1].index("SnapshotBegin")
        assert [one for one in reader.told[last:] if one.isdigit()] == ["6", "7"]
        begins = [one.asked for one in reader.heard if isinstance(one, SnapshotBegin)]
        assert begins == [None, 1, 2]
        put(log, "9")
        await until(lambda: reader.told[-1] == "9")
        assert reader.error is None


async def test_the_client_asks_for_ranges_without_rows_as_often_as_it_likes(log, serving, until):
    """F91: one after the other, on an idle log."""
    async with connect(serving().url) as remote:
        reader = Reader()
        remote.changes(ORDER, since="state").subscribe(reader)
        await until(lambda: "SnapshotEnd" in reader.told)
        for number in range(1, 31):
            assert reader.subscription.refresh(ORDER, after="8", until="9") == number
            await until(lambda number=number: reader.told.count("SnapshotEnd") == number + 1)
        assert reader.error is None


async def test_the_client_is_given_rows_in_place_of_a_gap(log, serving, until):
    """F90, F92."""
    old = str(log.token(Position(1)))
    put(log, "1")
    prune(log)
    async with connect(serving().url) as remote:
        reader = Reader()
        remote.changes(ORDER, since=old, snapshot="on_gap").subscribe(reader)
        await until(lambda: "SnapshotEnd" in reader.told)
        rows = [one for one in reader.heard if not isinstance(one, SnapshotBegin | SnapshotEnd | ChunkEnd)]
        assert {one.operation for one in rows} == {Operation.READ}
        with pytest.raises(RemoteError, match="HISTORY_PRUNED"):
            async for _ in remote.changes(ORDER, since=old, snapshot="initial"):
                pass


async def test_the_client_refuses_at_once_what_cannot_be_asked(log, serving, until):
    """F91."""
    async with connect(serving().url) as remote:
        plain, rows, only = Reader(), Reader(0), Reader(0)
        remote.changes(ORDER).subscribe(plain)
        remote.changes(ORDER, since="state").subscribe(rows)
        remote.changes(ORDER, since="state", snapshot="initial_only").subscribe(only)
        await until(lambda: all(hasattr(one, "subscription") for one in (plain, rows, only)))
        for one in (plain, only):
            with pytest.raises(InvalidOption, match="snapshot"):
                one.subscription.refresh()
        with pytest.raises(InvalidOption, match="entity type"):
            rows.subscription.refresh(after="1")
        rows.subscription.cancel()
        assert rows.subscription.refresh() == 1


def test_a_server_that_begins_what_was_not_asked_for_is_told():
    entry = ClientSubscription("a", {"start": "state"})
    entry.payload()
    entry.subscribed = True
    entry.ask_again({})
    assert entry.unasked() == [{}]
    assert entry.unasked() == []
    assert entry.begun(1) == 1
    for wrong in (0, 2):
        with pytest.raises(Violation):
            entry.begun(wrong)


def test_what_a_ping_asks_for_is_checked():
    wish = AgainRequest.of_types({"entityTypes": ["order"], "after": "1"})
    assert (wish.criteria, wish.after) == (Criteria.of(ORDER), "1")
    assert AgainRequest.of_types({}) == AgainRequest(Criteria.of(None))
    for wrong in (3, {"entityTypes": 3}, {"entityTypes": [3]}, {"until": 3}):
        with pytest.raises(InvalidRequest):
            AgainRequest.of_types(wrong)
    set_bounds(inline_weight=1)
    with pytest.raises(TooCostly):
        AgainRequest.of(json.loads('{"criteria": [{"keys": ["a", "b"]}]}'))


async def test_a_source_that_fails_is_named_and_a_client_goes_on_when_it_can_be_read_again(
    log, until, serving, caplog
):
    """F88, F90: why it fails is for the people of the server only."""
    rows, broken = {str(n): {} for n in range(1, 5)}, [OSError("password of the database")]

    def pages(request):
        if request.after == "2" and broken:
            raise broken[0]
        return [(key, rows[key]) for key in sorted(rows) if (request.after or "") < key][: request.limit]

    log.snapshots_from(PageSource(entity_type="order", pages=pages, page_rows=2))
    link = linked(log)
    await begin(link, until)
    await until(lambda: "error" in kinds(link))
    told = link.messages[-1]["payload"]
    assert (told["code"], told["retryable"]) == ("SOURCE_FAILED", True)
    assert "password" not in told["message"]
    assert "password of the database" in caplog.text
    link.receiver.lost()
    url = serving().url
    async with connect(url, reconnect=Backoff(first=0.0)) as remote:
        reader = Reader()
        remote.changes(ORDER, since="state").subscribe(reader)
        await until(lambda: caplog.text.count("password of the database") >= 3)
        broken.clear()
        await until(lambda: "SnapshotEnd" in reader.told)
        assert [key for key in reader.told if len(key) == 1] == ["1", "2", "3", "4"]
        assert reader.error is None
        rows["5"] = 3  # no body: another attempt would not help
        async with connect(url, reconnect=Backoff(first=0.0)) as other:
            with pytest.raises(RemoteError) as caught:
                [change async for change in other.changes(ORDER, since="state")]
        assert (caught.value.code, caught.value.retryable) == ("SOURCE_FAILED", False)


async def test_keys_that_no_row_of_the_source_can_have_are_the_fault_of_who_asks(log, until):
    """F91: the source is as good as it was."""

    def pages(request):
        if request.after is not None:
            raise InvalidOption("key", request.after, "a whole number")
        return []

    log.snapshots_from(PageSource(entity_type="order", pages=pages))
    link = linked(log)
    await begin(link, until)
    await until(lambda: ended(link))
    again(link, criteria=ORDERS, after="x")
    await until(lambda: "error" in kinds(link))
    told = link.messages[-1]["payload"]
    assert (told["code"], told["path"]) == ("INVALID_REQUEST", "key")
    link.receiver.lost()
