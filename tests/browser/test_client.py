"""penstock.js in a real browser, by itself: one page of the server's origin, no board."""

import json

import pytest

LOADED = """(async () => {
  const { connect, PenstockError } = await import("/board/penstock.js");
  const client = connect(`ws://${location.host}/ws`, { backoff: { first: 20, limit: 100 } });
  Object.assign(globalThis, { client, connect, PenstockError, seen: [] });
  globalThis.read = async (changes, most = Infinity) => {
    for await (const event of changes) {
      seen.push(event.key);
      if (seen.length >= most) break;
    }
  };
  return true;
})()"""


@pytest.fixture
def place(airport, tab):
    place = airport(ring_events=16)
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    return place


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


def test_until_ends_the_loop(place, tab):
    place.commit(30)
    start(tab, until=20)
    tab.run("reading.then(() => globalThis.left = true)")
    tab.until("globalThis.left")
    assert tab.run("seen.length") == 20
