"""penstock.js in a real browser, by itself: one page of the server's origin, no board."""

import json

import pytest

from publishers.criteria.criteria import Criterion
from publishers.errors import LogReplaced
from publishers.model.position import LogIdentity, Position
from publishers.mutations.mutation import schema, upsert
from publishers.views.view import Content
from tests.browser.conftest import LOADED
from tests.harness.inside import housekeeping_of
from transports import Grant, LogAction


def start(tab, most="Infinity", **wish):
    asked = json.dumps(
        {"criteria": [{"entity_types": ["flight"]}], "start": "earliest", "heartbeatMs": 100} | wish
    )
    tab.run(
        f"globalThis.changes = client.changes({asked}); globalThis.reading = read(changes, {most}).catch((e) => globalThis.failure = e); true"
    )


@pytest.mark.parametrize("window", [1, 3, 256])
def test_every_event_comes_once_and_in_order(place, tab, window):
    place.commit(150, size=10)
    start(tab, window=window)
    tab.until("seen.length === 150")
    place.commit(60)
    tab.until("seen.length === 210")
    assert tab.run("seen.join()") == ",".join(place.committed)
    tab.until("changes.state === 'LIVE' && changes.cursor === changes.head")


def test_a_reader_that_stops_reading_stops_asking(place, tab):
    place.commit(150, size=10)
    tab.run(
        "globalThis.changes = client.changes({criteria: [], start: 'earliest', window: 8, heartbeatMs: 100}); changes.next().then((e) => globalThis.one = e); true"
    )
    tab.until("changes.buffered > 4 && changes.demand === 0")
    (subscription,) = place.log.statistics().subscriptions
    assert subscription.demand == 0
    assert tab.run("changes.cursor === changes.oldest")
    tab.run("changes.next(); true")
    assert tab.run("changes.cursor") == tab.run("one.value.cursor")


def test_a_paused_subscription_gets_what_it_had_asked_for_and_no_more(place, tab):
    start(tab, window=10)
    tab.until("changes.demand === 10")
    tab.run("changes.pause()")
    place.commit(100)
    tab.until("seen.length === 10 && changes.state === 'RESYNC'")
    assert tab.run("[changes.demand, changes.paused]") == [0, True]
    tab.run("changes.resume()")
    tab.until("seen.length === 100 && changes.state === 'LIVE'")
    assert tab.run("seen.join()") == ",".join(place.committed)


def test_it_goes_on_behind_what_it_has_when_the_connection_is_lost(place, tab):
    place.commit(50)
    start(tab, window=7)
    for _ in range(3):
        place.commit(40)
        tab.until(f"seen.length === {len(place.committed)}")
        place.commit(40)
        place.restart()
    place.commit(10)
    tab.until(f"seen.length === {len(place.committed)}")
    assert tab.run("seen.join()") == ",".join(place.committed)
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_a_cursor_is_a_place_to_go_on(place, tab):
    place.commit(100, size=10)
    start(tab, most=30)
    tab.until("seen.length === 30")
    tab.run("reading.then(() => globalThis.left = true)")
    tab.until("globalThis.left")
    handled = tab.run("changes.cursor")  # the loop was left while the thirtieth was handled
    start(tab, since=handled, start=None)
    tab.until("seen.length === 101")
    assert tab.run("seen.slice(30).join()") == ",".join(place.committed[29:])


def test_leaving_the_loop_ends_the_subscription(place, tab, wait_for):
    place.commit(100)
    start(tab, most=5)
    tab.until("seen.length === 5")
    wait_for(lambda: not place.log.statistics().subscriptions)


def test_errors_of_the_server_end_the_loop_by_name(place, tab):
    start(tab, log="nowhere")
    assert tab.until("globalThis.failure?.code") == "LOG_NOT_FOUND"
    start(tab, since="nonsense", start=None)
    tab.until("failure.code === 'CURSOR_INVALID'")
    assert tab.run("failure instanceof PenstockError && client.status") == "open"


def test_a_log_that_was_replaced_ends_the_loop_and_is_not_asked_for_again(place, tab):
    """F144: another history may be there, which is for the reader to choose."""
    place.commit(10)
    start(tab)
    tab.until("seen.length === 10")
    old, new = (LogIdentity(place.log.log_id, epoch) for epoch in ("1.AAAAAAAAAAA", "2.BBBBBBBBBBB"))
    place.log.close(LogReplaced(old, new))
    assert tab.until("globalThis.failure?.code") == "LOG_REPLACED"
    assert tab.run("[failure.data.old.epoch, failure.data.new.epoch, failure.data.new.logId]") == [
        old.epoch,
        new.epoch,
        str(new.log_id),
    ]
    assert tab.run("[client.status, changes.subscribed]") == ["open", False]


def test_a_closed_client_ends_every_loop(place, tab):
    start(tab)
    tab.until("changes.subscribed")
    tab.run("reading.then(() => globalThis.left = true); client.close()")
    tab.until("globalThis.left && client.status === 'closed'")
    assert tab.run("(() => { try { client.changes(); } catch (e) { return e.code; } })()") == "CLOSED"


@pytest.mark.parametrize("window", ["0", "-1", "1.5", "2 ** 31", "NaN"])
def test_a_window_is_a_whole_number(place, tab, window):
    script = f"(() => {{ try {{ client.changes({{window: {window}}}); }} catch (e) {{ return e.name; }} }})()"
    assert tab.run(script) == "RangeError"


RETAIN = {
    "sync": "os",
    "fill_step": 65_536,
    "segment_bytes": 65_536,
    "retain_bytes": 65_536,
    "retain_age": None,
    "ring_events": 10,
}


def prune(log, wait_for):
    """Commits until retention has taken the beginning."""
    begin = log.oldest
    for _ in range(400):
        log.commit([upsert("flight", str(number), {"n": number}) for number in range(60)])
    housekeeping_of(log).poke()
    wait_for(lambda: log.oldest > begin)
    housekeeping_of(log).close()


@pytest.mark.parametrize("late", [True, False])
def test_it_jumps_over_what_is_missing_and_tells(airport, tab, wait_for, late):
    """E37, D5: a late start, and one that retention overtakes while the reader is busy."""
    place = airport("short", **RETAIN)
    place.log.commit([upsert("flight", str(number), {"n": number}) for number in range(5)])
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    since = str(place.log.token(Position(1, 2)))
    if late:
        prune(place.log, wait_for)
    tab.run(
        f"""globalThis.order = [];
        const onGap = ({{begin, end}}) => order.push([begin, end]);
        globalThis.changes = client.changes({{since: "{since}", onGap, window: 2}});
        globalThis.some = async (n) => {{
          for (; n > 0; n -= 1) {{
            const {{ value }} = await changes.next();
            order.push([value.version, value.index]);
          }}
          return true;
        }}; true"""
    )
    if not late:
        tab.run("some(1)")
        tab.until("changes.buffered === 2")
        prune(place.log, wait_for)
    tab.run(f"some({10 if late else 12})")
    order = [tuple(one) for one in tab.run("order")]
    gaps = [one for one in order if isinstance(one[0], str)]
    events = [one for one in order if isinstance(one[0], int)]
    # Retention may delete more while the reader jumps; he then jumps on, and is told that too.
    assert [begin for begin, _ in gaps[1:]] == [end for _, end in gaps[:-1]]
    (begin, _), (_, end) = gaps[0], gaps[-1]
    behind = order[order.index(gaps[-1]) + 1]
    assert end == str(place.log.token(Position(*behind)))
    if late:
        assert (order[0], begin) == (gaps[0], since)
        assert behind == place.log.oldest
    else:
        before = order[order.index(gaps[0]) - 1]
        assert begin == str(place.log.token(Position(before[0], before[1] + 1)))
        assert events[:3] == [(1, 2), (1, 3), (1, 4)]
    rest = events[events.index(behind) :]
    assert rest == [(behind[0], index) for index in range(len(rest))]


def test_nobody_jumps_in_silence(place, tab):
    """E37."""
    script = "(() => { try { client.changes({onGap: 'jump'}); } catch (e) { return e.name + e.message; } })()"
    assert tab.run(script).startswith('TypeErroronGap is "jump", but must be a function')


def test_a_reader_that_did_not_ask_to_jump_ends(airport, tab, wait_for):
    """E37, D5."""
    place = airport("short", **RETAIN)
    since = str(place.log.token(place.log.oldest))
    prune(place.log, wait_for)
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    start(tab, since=since, start=None)
    tab.until("globalThis.failure?.code === 'HISTORY_PRUNED'")
    assert tab.run("failure.data.oldest") == str(place.log.token(place.log.oldest))


def test_it_begins_wherever_it_is_told(place, tab):
    """F61, F31: latest, earliest, version, position, transaction, timestamp; and transactions as a whole."""
    place.commit(40, size=10)
    heads = [one for one in place.log.history(content=Content.BODY).changes if one.index == 0]
    third = place.log.time_of(3).isoformat()
    for wish, first in (
        ({"start": {"version": 3}}, 20),
        ({"start": {"version": 3, "index": 5}}, 24),
        ({"start": {"version": 3, "index": 5}, "whole": True}, 20),
        ({"since": str(place.log.token(Position(3, 5))), "start": None, "whole": True}, 20),
        ({"start": {"time": third}}, 20),
        ({"start": {"transaction": heads[2].body["id"]}}, 20),
    ):
        tab.run("seen.length = 0")
        start(tab, until=4, **wish)
        tab.run("reading.then(() => globalThis.left = true)")
        tab.until("globalThis.left")
        assert tab.run("seen.join()") == ",".join(place.committed[first:])
        tab.run("globalThis.left = false")
    tab.run(
        "seen.length = 0; globalThis.changes = client.changes({start: {time: new Date(0)}, until: 4}); true"
    )
    assert tab.run("changes.next().then(({value}) => [value.version, value.index])") == [1, 0]
    start(tab, start={"time": "noon"})
    tab.until("globalThis.failure?.data.path === 'start.time'")


def test_a_whole_transaction_is_not_sent_again_when_the_connection_is_lost(place, tab):
    """F31."""
    place.commit(20, size=10)
    start(tab, since=str(place.log.token(Position(1, 5))), start=None, whole=True, window=3, maxEvents=3)
    tab.until("seen.length === 20")
    tab.run("seen.length = 0")
    start(tab, since=str(place.log.token(Position(1, 5))), start=None, whole=True, window=3, maxEvents=3)
    tab.run("changes.pause()")
    place.restart()
    tab.until("client.status === 'open' && changes.subscribed")
    tab.run("changes.resume()")
    tab.until("seen.length === 20")
    assert tab.run("seen.join()") == ",".join(place.committed)
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_it_looks_schemas_up(place, tab):
    """F10: what a change names can be resolved, over a lost connection too."""
    place.log.commit([schema("flight", {"fields": ["a"]}), schema("flight", {"x": 1}, part="more")])
    place.commit(1)
    place.log.commit([schema("flight", {"fields": ["a", "b"]})])
    assert tab.run("client.schema('flight').then((told) => [told.version, told.parts])") == [
        3,
        {"entity": {"fields": ["a", "b"]}, "more": {"x": 1}},
    ]
    start(tab, start={"version": 2}, until=2)
    tab.until("seen.length === 1")
    tab.run("globalThis.one = client.changes({start: {version: 2, index: 1}}); true")
    script = "one.next().then(({value}) => client.schema(value.entity_type, {version: value.schema_version}))"
    told = tab.run(script)
    assert (told["log"], told["entity_type"], told["version"]) == ("flights", "flight", 2)
    assert told["parts"] == {"entity": {"fields": ["a"]}, "more": {"x": 1}}
    assert place.log.position_of(told["told"]) == place.log.schema("flight", 2).position
    assert tab.run("client.schema('flight', {version: 9})") is None
    assert tab.run("client.schema('').catch((error) => [error.code, error.data.path])") == [
        "INVALID_REQUEST",
        "entity_type",
    ]
    place.server.stop()
    tab.until("client.status !== 'open'")
    tab.run("globalThis.later = client.schema('flight', {version: 2}); true")
    place.restart()
    assert tab.run("later.then((told) => told.version)") == 2
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]
    assert (
        tab.run(
            "(() => { const p = client.schema('flight'); client.close(); return p.catch((e) => e.code); })()"
        )
        == "CLOSED"
    )


def test_integers_that_javascript_would_round_arrive_as_text(place, tab):
    """F24: if the subscription asks for that; and the change has its version for its entry version."""
    place.log.commit([upsert("count", "1", {"n": 2**53 + 1, "m": 2**53}, entry_version=2**60)])
    for integers, told in (("TEXT", [str(2**53 + 1), 2**53, str(2**60)]), ("NUMBER", [2**53, 2**53, 2**60])):
        asked = {
            "criteria": [{"entity_types": ["count"]}],
            "start": "earliest",
            "content": "BODY",
            "integers": integers,
        }
        tab.run(
            f"client.changes({json.dumps(asked)}).next().then((e) => globalThis.{integers} = e.value); true"
        )
        tab.until(f"globalThis.{integers} !== undefined")
        assert tab.run(f"[{integers}.body.n, {integers}.body.m, {integers}.entry_version]") == told


@pytest.fixture
def writable(place, tab):
    place.authorise = Grant({LogAction.READ, LogAction.WRITE})
    place.restart()
    yield place
    tab.run("0")
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_transactions_are_committed_once_and_in_order_over_restarts(writable, tab):
    """F145: what was under way when the connection was lost is sent again."""
    tab.run("""globalThis.send = (from, to) => {
      for (let n = from; n < to; n += 1) {
        client.commit([{ entity_type: "note", key: String(n), body: { n } }]).then((one) => (answers[n] = one.version));
      }
    }; globalThis.answers = []; true""")
    for round_ in range(4):
        tab.run(f"send({round_ * 100}, {round_ * 100 + 100}); true")
        tab.until(f"Object.keys(answers).length > {round_ * 100}")
        writable.restart()
    tab.until("Object.keys(answers).length === 400")
    page = writable.log.history(Criterion(entity_types={"note"}), since="earliest", limit=1_000)
    assert [change.key for change in page.changes] == [str(n) for n in range(400)]
    assert tab.run("answers.join()") == ",".join(str(change.version) for change in page.changes)


def test_what_is_committed_while_the_connection_closes_is_sent_on_the_next_one(writable, tab):
    """F145: and the page complains of nothing sent over the old one."""
    tab.run("""globalThis.sockets = [];
    globalThis.WebSocket = class extends WebSocket { constructor(...told) { super(...told); sockets.push(this); } };
    globalThis.second = connect(`ws://${location.host}/ws`, { backoff: { first: 20, limit: 100 } }); true""")
    tab.until("second.status === 'open'")
    tab.run("""sockets.forEach((one) => one.close());
    second.commit([{ entity_type: "note", key: "1", body: {} }]).then((one) => (globalThis.written = one.version)); true""")
    tab.until("globalThis.written !== undefined")
    assert tab.run("written") == writable.log.head.version - 1


def test_a_refused_transaction_stops_none_that_follow(writable, tab):
    """F145: they go behind it, in their order."""
    tab.run("""(async () => {
      const write = (key, options) => client.commit([{ entity_type: "note", key, body: {} }], options);
      const { cursor } = await write("0");
      await write("1");
      globalThis.refused = write("2", { expect: cursor }).catch((error) => [error.code, error.data.outcome]);
      globalThis.followed = Promise.all([write("3"), write("4")]);
      globalThis.told = [await refused, (await followed).map((one) => one.changes)];
    })(); true""")
    tab.until("globalThis.told !== undefined")
    assert tab.run("told") == [["EXPECTATION_FAILED", "refused"], [2, 2]]
    page = writable.log.history(Criterion(entity_types={"note"}), since="earliest", limit=100)
    assert [change.key for change in page.changes] == ["0", "1", "3", "4"]


def test_a_client_that_may_not_write_is_told_so(place, tab):
    """F140, F145."""
    tab.run(
        "client.commit([{entity_type: 'note', key: '1', body: {}}]).catch((e) => globalThis.failure = [e.code, e.data.outcome]); true"
    )
    tab.until("globalThis.failure !== undefined")
    assert tab.run("failure") == ["FORBIDDEN", "refused"]
    tab.run("client.close(); true")
    tab.run("client.commit([]).catch((e) => globalThis.afterwards = e.code); true")
    tab.until("globalThis.afterwards === 'CLOSED'")
