"""One connection over a link of the test: pauses, losses and time as the test wants them."""

import asyncio
import json
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from publishers.fanout.ring import Ring
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.harness.constants import without_bounds
from tests.harness.failing import failing
from transports.access.access import Access
from transports.codec.events import EventEncoder
from transports.errors import CloseCode
from transports.limits import Limits
from transports.server.change_driver import ChangeDriver


class FakeLink:
    """A link whose peer takes what the test says."""

    def __init__(self):
        self.payer = "one"
        self.held = False
        self.paused = False
        self.unsent = 0
        self.messages = []
        self.closed = None
        self.receiver = None
        self._queue = []

    def write(self, message):
        self._queue.append(json.loads(message))

    def flush(self):
        self.messages += self._queue
        self._queue.clear()

    def close(self, code, reason):
        self.flush()
        self.closed = (code, reason)
        self.receiver.lost()

    def abort(self):
        self.receiver.lost()


def connect(log, *, weight=None, authorise=None, **limits):
    link = FakeLink()
    loop = asyncio.get_running_loop()
    link.receiver = ChangeDriver(
        {"shop": log},
        link,
        limits=Limits(**without_bounds(limits)),
        weight=weight,
        loop=loop,
        server="test",
        access=Access(authorise=authorise),
    )
    say(link, type="connection_init")
    return link


def say(link, **message):
    link.receiver.received(json.dumps(message))


def subscribe(link, name="a", **payload):
    say(link, type="subscribe", id=name, payload={"criteria": [], "credits": 0} | payload)


def kinds(link):
    return [message["type"] for message in link.messages]


async def test_a_client_that_leaves_before_it_is_subscribed_leaves_nothing_behind(log, until):
    link = connect(log)
    link.paused = True
    subscribe(link, "a", credits=5)
    subscribe(link, "b", credits=5)
    say(link, type="complete", id="a")
    assert log.statistics().publishers
    link.receiver.lost()
    await until(lambda: not log.statistics().publishers)
    assert "subscribed" not in kinds(link)


async def test_a_paused_link_gets_neither_events_nor_checkpoints_until_it_has_drained(log, fill, until):
    link = connect(log)
    subscribe(link, credits=100, heartbeatMs=1)
    await until(lambda: "checkpoint" in kinds(link))
    link.paused = True
    before = len(link.messages)
    fill(3)
    # The timer finds the link paused, and is not set again.
    await until(lambda: link.receiver._timer is None)
    assert len(link.messages) == before
    link.paused = False
    link.receiver.drained()
    await until(lambda: "next" in kinds(link)[before:])
    await until(lambda: "checkpoint" in kinds(link)[before:])
    link.receiver.lost()


async def test_a_cancelled_subscription_is_released_also_while_the_link_is_paused(log, fill, until):
    link = connect(log)
    subscribe(link, credits=1)
    await until(lambda: "subscribed" in kinds(link))
    link.paused = True
    fill(1)
    say(link, type="complete", id="a")
    await until(lambda: not log.statistics().publishers)
    link.receiver.lost()


async def test_an_event_that_cannot_be_encoded_ends_that_subscription_with_internal(
    log, fill, until, monkeypatch
):
    link = connect(log)
    subscribe(link, credits=5)
    await until(lambda: "subscribed" in kinds(link))

    failing(monkeypatch, "transports.codec.events.EventEncoder.next", RuntimeError("a secret"))
    fill(1)
    await until(lambda: "error" in kinds(link))
    problem = link.messages[-1]["payload"]
    assert problem["code"] == "INTERNAL"
    assert "secret" not in json.dumps(problem)
    await until(lambda: not log.statistics().publishers)
    assert link.closed is None


async def test_the_init_timeout_is_kept_by_the_clock_of_the_loop(log, until):
    link = FakeLink()
    link.receiver = ChangeDriver(
        {"shop": log},
        link,
        limits=Limits(**without_bounds({"init_timeout": 0.01})),
        loop=asyncio.get_running_loop(),
        server="test",
    )
    await until(lambda: link.closed)
    assert link.closed[0] is CloseCode.INIT_TIMEOUT


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 6)),
        st.tuples(st.just("request"), st.sampled_from("ab"), st.integers(1, 9)),
        st.tuples(st.just("pause")),
        st.tuples(st.just("drain")),
        st.tuples(st.just("turn")),
    ),
    max_size=40,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.integers(1, 5), st.integers(1, 5))
def test_whatever_happens_each_event_comes_once_in_order_and_within_the_credits(until, steps, first, second):
    with (
        tempfile.TemporaryDirectory() as directory,
        ChangeLog.open(f"{directory}/log", ring_events=16) as log,
    ):
        asyncio.run(_play(log, until, steps, first, second))


async def _play(log, until, steps, first, second):
    link = connect(log)
    requested = {"a": 3, "b": 0}
    subscribe(link, "a", credits=3, start="earliest", batch={"maxEvents": first})
    subscribe(link, "b", credits=0, start="earliest", batch={"maxEvents": second})
    total = 0
    for step in steps:
        match step:
            case ("commit", size):
                log.commit([upsert("order", str(n), {}) for n in range(size)])
                total += size + 1
            case ("request", name, n):
                requested[name] += n
                say(link, type="request", id=name, n=n)
            case ("pause",):
                link.paused = True
            case ("drain",):
                link.paused = False
                link.receiver.drained()
            case _:
                await asyncio.sleep(0)
        _check(link, requested)
    link.paused = False
    link.receiver.drained()
    for name in "ab":
        if total:
            requested[name] += total
            say(link, type="request", id=name, n=total)
    await until(lambda: all(len(_events(link, name)) == total for name in "ab"))
    _check(link, requested)
    link.receiver.lost()
    await until(lambda: not log.statistics().publishers)


def _events(link, name):
    return [
        (event["version"], event["index"])
        for message in link.messages
        if message["type"] == "next" and message["id"] == name
        for event in message["events"]
    ]


def _check(link, requested):
    for name, allowed in requested.items():
        places = _events(link, name)
        assert len(places) <= allowed
        assert places == sorted(set(places))
    cursors = {}
    for message in link.messages:
        items = [message] if message["type"] == "next" else message.get("items", [])
        for item in items:
            place = tuple(int(part) for part in item["cursor"].split(":")[2:])
            assert place >= cursors.get(item["id"], (0, 0))
            cursors[item["id"]] = place


@pytest.mark.parametrize("count", [100])
async def test_a_hundred_subscriptions_of_one_connection_share_their_events_fairly(log, fill, until, count):
    link = connect(log)
    for number in range(count):
        subscribe(link, str(number), credits=1000, batch={"maxEvents": 4})
    await until(lambda: kinds(link).count("subscribed") == count)
    fill(1, changes=39)
    await until(lambda: sum(len(m["events"]) for m in link.messages if m["type"] == "next") == 40 * count)
    order = [message["id"] for message in link.messages if message["type"] == "next"]
    assert len(set(order[:count])) == count
    link.receiver.lost()


async def test_connections_of_one_loop_are_given_a_commit_together(log, fill, until, monkeypatch):
    """One look at the ring and one encoding for all; what has no credit is not looked at."""
    links = [connect(log) for _ in range(30)]
    for link in links:
        subscribe(link, credits=1000)
    subscribe(idle := connect(log), credits=0)
    await until(lambda: all(kinds(link).count("subscribed") == 1 for link in (*links, idle)))
    fill(1)
    await until(lambda: all(kinds(link).count("next") == 1 for link in links))
    looks, encodings = [], []
    poll, events = Ring.poll, EventEncoder.events
    monkeypatch.setattr(Ring, "poll", lambda *args, **named: looks.append(1) or poll(*args, **named))
    monkeypatch.setattr(EventEncoder, "events", lambda *args: encodings.append(1) or events(*args))
    fill(1)
    await until(lambda: all(kinds(link).count("next") == 2 for link in links))
    assert (len(looks), len(encodings)) == (0, 1)
    assert len({link.messages[-1]["cursor"] for link in links}) == 1
    assert kinds(idle).count("next") == 0
    for link in (*links, idle):
        link.receiver.lost()


async def test_a_log_that_fails_ends_the_subscription_and_not_the_connection(log, monkeypatch, caplog):
    link = connect(log)
    monkeypatch.setattr(type(log), "changes", lambda *_, **__: {}["secret"])
    subscribe(link)
    (error,) = [message for message in link.messages if message["type"] == "error"]
    assert error["payload"]["code"] == "INTERNAL"
    assert error["payload"]["id"] in caplog.text
    assert "secret" not in error["payload"]["message"]
    assert link.closed is None


async def test_what_cannot_be_told_of_a_new_subscription_ends_it_with_an_error(
    log, until, monkeypatch, caplog
):
    link = connect(log)
    monkeypatch.setattr(type(log), "head", property(lambda _: {}["secret"]))
    subscribe(link)
    await until(lambda: any(message["type"] == "error" for message in link.messages))
    assert link.messages[-1]["payload"]["code"] == "INTERNAL"
    assert log.statistics().subscriptions == ()


async def test_a_failing_timer_closes_the_connection_instead_of_going_silent(log, until, monkeypatch, caplog):
    link = connect(log)
    subscribe(link, heartbeatMs=10)
    await until(lambda: any(message["type"] == "subscribed" for message in link.messages))
    monkeypatch.setattr(ChangeDriver, "_checkpoint", lambda *_: {}["secret"])
    await until(lambda: link.closed)
    assert link.closed[0] is CloseCode.INTERNAL
    assert link.closed[1].split()[-1] in caplog.text
