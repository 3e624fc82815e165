"""penstock.js as a consumer of slots and groups, over lost connections."""

from publishers.criteria.criteria import Criteria, Criterion
from transports import Grant, LogAction


def test_a_slot_is_read_and_acknowledged_over_lost_connections(place, tab, wait_for):
    """F74: with the generation that it has, nothing missing and nothing twice, and given back when the loop is left."""
    place.log.slots.create("stock", Criterion(entity_types={"flight"}), since="earliest")
    place.log.slots.create("bills")
    place.authorise = Grant({LogAction.CONSUME}, slots=["stock"])
    place.commit(30)
    place.restart()
    tab.run("""
        globalThis.stock = client.slot("stock", { owner: "tab", window: 7 });
        globalThis.consume = async (most) => {
          for await (const event of stock) {
            seen.push(event.key);
            stock.ack(event);
            globalThis.last = event;
            if (seen.length >= most) break;
          }
        };
        globalThis.reading = consume(60).then(() => globalThis.left = true);
        true""")
    tab.until("seen.length === 30")
    slots = place.log.slots
    assert (slots.info("stock").owner, slots.info("stock").generation) == ("tab", 1)
    assert tab.run("stock.generation") == 1
    wait_for(lambda: slots.info("stock").position == place.log.head)
    place.restart()
    place.commit(10)
    tab.until("seen.length === 40")
    assert (
        tab.run("stock.generation") == 2
    )  # the server has given it back when it stopped, and nobody has had it since
    assert tab.run("stock.ackDurably(last).then(() => stock.acknowledged === last.cursor)")
    assert not slots.info("stock").unsynced
    assert tab.run("client.slot('stock').next().catch((e) => [e.code, e.data.owner])") == ["SLOT_BUSY", "tab"]
    assert tab.run("client.slot('bills').next().catch((e) => e.code)") == "FORBIDDEN"
    place.commit(20)
    tab.until("globalThis.left")
    assert tab.run("seen.join()") == ",".join(place.committed)
    wait_for(lambda: slots.info("stock").owner is None)
    assert slots.info("stock").position == place.log.head
    refused = "stock.ackDurably(last).catch((e) => e.code)"
    assert tab.run(refused) == "CLOSED"
    tab.run("globalThis.one = client.slot('stock').next().catch((e) => e.code); true")
    wait_for(lambda: slots.info("stock").owner is not None)
    tab.run("globalThis.two = client.slot('stock', { takeOver: true }); two.next(); true")
    assert tab.run("one") == "FENCED"
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_a_consumer_of_a_group_reads_and_acknowledges_over_lost_connections(place, tab, wait_for):
    """F75 to F80, F84: each delivery once, what was refused again, and what another one has is refused."""
    group = place.log.groups.create("pickers", Criterion(entity_types={"flight"}), since="earliest")
    place.authorise = Grant({LogAction.CONSUME}, groups=["pick*"])
    place.commit(30)
    place.restart()
    tab.run("""
        globalThis.worker = client.group("pickers", "tab", { window: 7 });
        globalThis.held = [];
        globalThis.work = async (most) => {
          for await (const delivery of worker) {
            held.push(delivery);
            if (held.length % 3) await worker.ack(delivery);
            seen.push(delivery.events[0].key);
            if (seen.length >= most) break;
          }
        };
        globalThis.working = work(70).then(() => globalThis.left = true);
        true""")
    tab.until("seen.length === 30")
    assert tab.run(
        "[worker.generation, held[0].count, held[0].generation, held[0].events[0].body !== undefined]"
    ) == [1, 1, 1, True]
    wait_for(lambda: group.info().acked == 20)
    assert tab.run(
        "worker.pending({ limit: 2 }).then(({ total, rows }) => [total, rows.length, rows[0].consumer])"
    ) == [10, 2, "tab"]
    assert tab.run("worker.inProgress(held[2])") == 1
    assert tab.run("worker.nack(held[2], { delayMs: 0, count: false })") == 1
    tab.until("seen.length === 31")
    assert tab.run("[held[30].at === held[2].at, held[30].count]") == [True, 1]
    assert tab.run("worker.term(held[5], 'broken')") == 1
    assert [letter.last_error for letter in group.dead.inspect()] == ["broken"]
    assert tab.run("worker.ack(held.slice(6, 30), { durable: true })") == 8
    assert tab.run("worker.ack([])") == 0
    place.restart()
    place.commit(10)
    tab.until("seen.length >= 40")
    assert tab.run("worker.generation") == 2  # it left when the server stopped
    assert tab.run("worker.claim({ at: [held[0].at] }).then((e) => [e.deliveries, e.next, e.lost])") == [
        [],
        None,
        [],
    ]
    assert tab.run("client.group('bills', 'tab').next().catch((e) => e.code)") == "FORBIDDEN"
    with group.join("other") as other:
        place.commit(1)
        at = tab.run("held[39].at")
        tab.until("seen.length >= 41")
        (taken,) = other.claim(0.0, [row.position for row in group.pending_rows()][:1]).deliveries
        assert other.ack(taken) == 1
    assert at
    tab.run("worker.return(); true")
    tab.until("globalThis.left")
    wait_for(lambda: not group.info().consumers)
    assert tab.run("worker.ack(held[0]).catch((e) => e.code)") == "CLOSED"
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_groups_are_managed_and_their_dead_letters_replayed_over_lost_connections(place, tab):
    """F75, F83, F84: create, reset, pause, pending, dead letters by pages, discard and drop, by name of the grant."""
    place.authorise = Grant({LogAction.CONSUME}, groups=["pick*"])
    place.commit(5)
    place.restart()
    tab.run("""
        globalThis.order = (what, order) => client.groups(what, { name: "pickers", ...order }).catch((error) => error.code);
        globalThis.wish = { criteria: [{ entity_types: ["flight"] }], start: "earliest", options: { max_deliver: 3 } };
        true""")
    told = tab.run("order('create', wish)")
    assert (told["name"], told["state"], told["version"], told["changed"]) == ("pickers", "serving", 1, True)
    group = place.log.groups.open("pickers")
    assert (group.book.record.settings.max_deliver, group.book.criteria) == (
        3,
        Criteria.of(Criterion(entity_types={"flight"})),
    )
    assert tab.run("order('create', wish)") == "GROUP_EXISTS"
    assert tab.run("order('create', { options: { colour: 1 } })") == "INVALID_REQUEST"
    assert tab.run("order('pause', { name: 'bills' })") == "FORBIDDEN"
    assert tab.run("order('pause', { name: 'picks' })") == "GROUP_NOT_FOUND"
    assert tab.run("order('pause').then((told) => [told.state, told.changed])") == ["paused", True]
    assert tab.run("order('resume').then((told) => [told.state, told.changed])") == ["serving", True]
    with group.join("one") as worker:
        found = worker.read(5, wait=0)
        assert tab.run(
            "order('pending', { limit: 2 }).then(({ total, rows }) => [total, rows.length, rows[0].consumer])"
        ) == [5, 2, "one"]
        assert tab.run("order('release', { minIdleMs: 600000 })") == {"count": 0}
        assert tab.run("order('release')") == {"count": 5}
        found = worker.read(5, wait=0)
        for delivery in found[:4]:
            worker.term(delivery, "broken")
        told_now = tab.run("order('info')")
        assert told_now["log"] == told["log"]
        assert (told_now["name"], told_now["state"], told_now["consumerNames"]) == (
            "pickers",
            "serving",
            ["one"],
        )
        assert (told_now["pending"], told_now["dead"], told_now["lastError"]) == (1, 4, "broken")
        assert told_now["floor"]["cursor"] == str(place.log.token(found[4].position))
    place.restart()
    positions = [str(delivery.position) for delivery in found[:4]]
    assert (
        tab.run("""(async () => {
        const read = [];
        for await (const letter of client.deadLetters("pickers", { limit: 3 })) {
          read.push(letter.position);
          if (letter.last_error !== "broken" || letter.changes.length !== 1) throw letter;
        }
        return read;
    })()""")
        == positions
    )
    assert tab.run(f"order('discard', {{ positions: [{positions[0]!r}, '9:9'] }})") == {"count": 1}
    assert tab.run("order('discard')") == {"count": 3}
    assert tab.run("client.deadLetters('pickers').next()") == {"done": True}
    assert tab.run("order('reset', { start: 'latest' }).then((told) => told.version)") == 6
    assert tab.run("order('drop')") == {"log": told["log"], "name": "pickers"}
    assert "pickers" not in place.log.groups
    assert tab.run("client.deadLetters('pickers').next().catch((error) => error.code)") == "GROUP_NOT_FOUND"
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]
