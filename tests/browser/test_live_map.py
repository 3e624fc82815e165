"""penstock.js in a real browser: the state first, and a map that is kept right over lost connections."""

import json

import pytest

from penstock_cdc.fields import set_field
from penstock_cdc.mutations import expire
from publishers import PageSource, Position, rekey, remove, truncate, upsert
from tests.publishers.movement import RETAIN, prune

LOADED = """(async () => {
  const { connect, PenstockError } = await import("/board/penstock.js");
  const client = connect(`ws://${location.host}/ws`, { backoff: { first: 20, limit: 100 } });
  Object.assign(globalThis, { client, connect, PenstockError, seen: [], told: [] });
  return true;
})()"""


@pytest.fixture
def place(airport, tab):
    place = airport(state=True, state_interval=0.0)
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    return place


def put(place, *keys, **body):
    place.log.commit([upsert("order", key, {"key": key, **body}) for key in keys])


def follow(tab, wish=None):
    tab.run(f"""
      globalThis.orders = client.liveMap("order", {json.dumps(wish or {})});
      for (const name of ["change", "ready", "error"]) {{
        orders.addEventListener(name, ({{ detail }}) => told.push(...(name === "change" ? detail.changes.map((one) => `${{one.operation}} ${{one.key}}`) : [name])));
      }}
      globalThis.shown = () => Object.fromEntries([...orders].sort());
      true
    """)


def quiet(tab):
    """A page complains of connections that are lost, as they are to be."""
    tab.complaints = [one for one in tab.complaints if "WebSocket" not in one and "ERR_" not in one]


def state(place):
    return {row.key: row.body for row in place.log.state.page("order", limit=1000).rows}


def test_a_map_shows_what_there_is_and_every_change(place, tab):
    """F88, F93, F146."""
    put(place, "1", "2", "3")
    place.log.commit([upsert("flight", "x", {})])
    follow(tab)
    tab.until("orders.complete")
    assert tab.run(
        "[orders.size, orders.get('2'), orders.has('9'), [...orders.keys()], [...orders.values()].length]"
    ) == [
        3,
        {"key": "2"},
        False,
        ["1", "2", "3"],
        3,
    ]
    assert tab.run("[...orders.entries()].length") == 3
    assert tab.run("orders.ready.then((map) => map === orders)") is True
    place.log.commit(
        [
            remove("order", "1"),
            rekey("order", "2", "22", {"key": "22"}),
            upsert("order", "3", {"a": 2}, changes=[set_field("a", 2)]),
            upsert("order", "4", {}),
            expire("order", "4"),
        ]
    )
    tab.until("told.includes('EXPIRE 4')")
    assert tab.run("shown()") == {"22": {"key": "22"}, "3": {"a": 2}}
    place.log.commit([truncate("order"), upsert("order", "5", {"n": 5})])
    tab.until("orders.has('5')")
    assert tab.run("shown()") == {"5": {"n": 5}}
    assert tab.run("orders.cursor") == str(place.log.token(place.log.head))
    tab.run("orders.close(); true")
    assert tab.run("client.status") == "open"


def test_a_map_of_some_keys_is_emptied_by_a_truncate_too(place, tab):
    """F88."""
    put(place, "a1", "a2", "b1")
    follow(tab, {"key_globs": ["a*"]})
    tab.until("orders.complete")
    assert sorted(tab.run("shown()")) == ["a1", "a2"]
    place.log.commit([truncate("order"), upsert("order", "a3", {})])
    tab.until("orders.has('a3')")
    assert tab.run("shown()") == {"a3": {}}


def test_a_map_is_right_after_lost_connections(place, tab):
    """F39, F89: with changes while there is none."""
    put(place, *(f"{number:03}" for number in range(50)))
    follow(tab, {"window": 3})
    for number in range(3):
        tab.until("told.length > 0")
        place.restart()
        place.log.commit(
            [remove("order", f"{number:03}"), upsert("order", f"{number + 10:03}", {"n": number})]
        )
        put(place, f"x{number}")
        tab.until(f"orders.has('x{number}')")
    place.log.state.wait(place.log.visible)
    tab.until("orders.complete && orders.size === 50")
    assert tab.run("shown()") == state(place)
    quiet(tab)


def test_rows_are_read_at_the_pace_of_the_reader_and_go_on_in_the_middle(place, tab):
    """F88, F89, F90."""
    put(place, *"123456")
    tab.run("""
      globalThis.changes = client.changes({ criteria: [], start: "state", snapshot: "initial_only", window: 2 });
      changes.addEventListener("ready", () => told.push("ready"));
      globalThis.take = async (count) => {
        for (let n = 0; n < count; n += 1) {
          const { value, done } = await changes.next();
          seen.push(done ? "end" : `${value.operation} ${value.key}`);
        }
        return seen.length;
      };
      true
    """)
    assert tab.run("take(3)") == 3
    assert tab.run("changes.ready") is False
    assert tab.run("changes.received.startsWith('n1:')") is True
    place.restart()
    assert tab.run("take(4)") == 7
    assert tab.run("seen") == [*(f"READ {key}" for key in "123456"), "end"]
    assert tab.run("[told, changes.ready]") == [["ready"], True]
    quiet(tab)


def test_a_map_begins_again_where_it_cannot_go_on_and_ends_where_there_is_no_state(place, tab):
    """F89, F92."""
    put(place, "1", "2")
    tab.run(f"globalThis.token = '{place.log.token(place.log.head)}'; true")
    tab.run("""
      let first = true;
      const changes = client.changes.bind(client);
      client.changes = (wish) => {
        const since = first ? { since: `n1:0123456789abcdef:~AAAA:${token}`, start: undefined } : {};
        first = false;
        return changes({ ...wish, ...since });
      };
      true
    """)
    follow(tab)
    tab.until("orders.complete")
    assert sorted(tab.run("shown()")) == ["1", "2"]
    assert tab.run("told.includes('error')") is False
    tab.run("""
      globalThis.none = client.liveMap("order", { log: "nonsense" });
      none.ready.catch((error) => globalThis.failure = error.code);
      true
    """)
    tab.until("globalThis.failure")
    assert tab.run("failure") == "LOG_NOT_FOUND"
    tab.run("client.close(); true")
    tab.until("told.includes('error')")
    tab.run(
        "globalThis.late = client.liveMap('order'); late.ready.catch((error) => globalThis.ending = error.code); true"
    )
    tab.until("globalThis.ending === 'CLOSED'")


def follow_rows(tab, wish):
    tab.run(f"""
      globalThis.changes = client.changes({{ criteria: [{{ areas: ["DATA"] }}], ...{json.dumps(wish)} }});
      changes.addEventListener("snapshot", ({{ detail: {{ what, asked }} }}) => seen.push(`${{what}} ${{asked ?? ""}}`));
      (async () => {{ for await (const {{ operation, key }} of changes) seen.push(`${{operation}} ${{key}}`); }})();
      true
    """)


def test_rows_come_again_over_a_lost_connection_too(place, tab):
    """F39, F91: of types and of ranges of keys, with a beginning that tells which ones they are."""
    put(place, *"12345")
    place.log.commit([upsert("flight", "x", {})])
    follow_rows(tab, {"start": "state"})
    ranged = '{ criteria: [{ entity_types: ["order"] }], after: "2", until: "4" }'
    assert tab.run(f"changes.refresh({ranged})") == 1  # before it is subscribed, perhaps
    tab.until("seen.filter((one) => one.startsWith('end')).length === 2")
    rows = ["READ x", *(f"READ {key}" for key in "12345")]
    assert tab.run("seen") == ["begin ", *rows, "end ", "begin 1", "READ 3", "READ 4", "end "]
    tab.run("seen.length = 0; true")
    place.restart()
    assert tab.run("changes.refresh({ criteria: [{ entity_types: ['flight'] }] })") == 2
    tab.until("seen.length === 3")
    assert tab.run("seen") == ["begin 2", "READ x", "end "]
    put(place, "9")
    tab.until("seen.at(-1) === 'UPSERT 9'")
    assert tab.run("""(() => {
      try { client.changes({ criteria: [] }).refresh(); } catch (error) { return error.message; }
    })()""").startswith("refresh needs start")
    quiet(tab)


def test_rows_come_in_place_of_history_that_is_missing(airport, tab):
    """F90, F92."""
    place = airport(**RETAIN)
    rows = [("1", {"key": "1"}), ("2", {"key": "2"})]
    pages = PageSource(
        entity_type="order",
        pages=lambda request: [row for row in rows if row[0] > (request.after or "")][: request.limit],
    )
    place.log.snapshots_from(pages)
    there = len(rows)
    tab.open(f"{place.url}health")
    tab.run(LOADED)
    since = str(place.log.token(Position(1)))
    prune(place.log)
    follow_rows(tab, {"since": since, "snapshot": "on_gap"})
    tab.until("seen.includes('end ')")
    assert tab.run("seen[0]") == "begin "
    assert tab.run("seen.filter((one) => one.startsWith('READ')).length") == there
    assert tab.run("changes.ready") is True


def test_a_map_tells_a_message_once_and_is_a_store(place, tab):
    """F88: the documented reader is linear, and a store of React, Svelte or Vue sees what the map shows."""
    count = 3000
    place.log.commit([upsert("order", str(number), {}) for number in range(count)])
    tab.run("""
      globalThis.orders = client.liveMap("order");
      globalThis.rows = globalThis.visits = 0;
      orders.addEventListener("change", ({ detail }) => { rows += detail.changes.length; visits += [...orders].length; globalThis.last = detail; });
      globalThis.shots = [];
      globalThis.leave = orders.subscribe((entities) => shots.push(entities));
      true
    """)
    tab.until("orders.complete")
    assert tab.run("[rows, shots[0].size, shots.at(-1).size, shots.at(-1) === orders.snapshot()]") == [
        count,
        0,
        count,
        True,
    ]
    assert tab.run("visits") <= count * count // 20
    place.log.commit([remove("order", "1"), upsert("order", "2", {"n": 2})])
    tab.until("orders.size === 2999")
    assert tab.run("last") == {
        "version": 2,
        "changes": [
            {"operation": "REMOVE", "key": "1"},
            {"operation": "UPSERT", "key": "2", "value": {"n": 2}},
        ],
    }
    assert tab.run("[shots.at(-2).has('1'), shots.at(-1).has('1'), shots.at(-1).get('2')]") == [
        True,
        False,
        {"n": 2},
    ]
    tab.run("leave(); globalThis.known = shots.length; client.close(); true")
    tab.until("orders.error?.code === 'CLOSED'")
    assert tab.run("shots.length === known")
