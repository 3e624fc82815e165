"""What a client can do with criteria, beside a healthy subscriber and a committer, whose work is counted.

Each test names the bound without which it fails; what is counted are steps, not seconds.
"""

import asyncio
import json
import sys
import threading
from contextlib import contextmanager
from random import Random

import pytest

from publishers import upsert
from publishers.criteria import patterns as patterns_module
from publishers.criteria.conditions import Where
from publishers.criteria.criteria import Criteria
from publishers.criteria.index_table import Table
from publishers.criteria.predicate import Predicate
from tests.attacks.conftest import leaves_nothing
from tests.harness.constants import without_bounds
from tests.harness.scale import scaled
from tests.transports.server.test_change_driver import FakeLink, say, subscribe
from transports import Limits
from transports.graphql.execution import Engine
from transports.limits import INLINE_WEIGHT
from transports.quotas.weight import ServerWeight
from transports.server.graphql_driver import GraphQLDriver

EXPLODING = [
    "(a+)+b",
    "((a{9}){9}){2}b",
    "(.*a){20}b",
    ".*a.{200}",
    "(a|a)*(a|a)*b",
    "(a?){100}a{100}",
    "([a-z]|[a-y])*!",
]


@contextmanager
def on_the_loop(kind, name, monkeypatch):
    """Counts the calls of a function that are made on the thread of the loop, and those that are made elsewhere."""
    loop, counts, original = threading.current_thread(), {"loop": 0, "elsewhere": 0}, getattr(kind, name)

    def counted(*given, **named):
        counts["loop" if threading.current_thread() is loop else "elsewhere"] += 1
        return original(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(
            kind, name, staticmethod(counted) if isinstance(vars(kind).get(name), staticmethod) else counted
        )
        yield counts


def errors_of(link):
    return [message["payload"] for message in link.messages if message["type"] == "error"]


def healthy(connected):
    link = connected()
    subscribe(link, "healthy", credits=1_000, criteria=[{"keys": ["mine"]}])
    return link


async def committed(log, link, until, count=3):
    """Commits, and waits until the healthy subscriber has every one of them, once and in order."""
    before = len(events_of(link))
    versions = [
        (await log.commit_async([upsert("order", "mine", {}), upsert("order", "a" * 60, {})])).version
        for _ in range(count)
    ]
    await until(lambda: len(events_of(link)) >= before + count)
    assert [event["version"] for event in events_of(link)[before:]] == versions


def events_of(link):
    return [event for message in link.messages if message["type"] == "next" for event in message["events"]]


async def test_a_message_of_patterns_that_explode_is_refused_before_one_of_them_is_made(
    log, connected, until, monkeypatch
):
    """F147: 39 KB of patterns; without `subscription_weight` every one of them becomes an automaton."""
    link, attacker = healthy(connected), connected()
    wishes = [
        {"key_patterns": [f"({n}[a-z]{{1,120}}){{2}}" for n in range(first, first + 90)]}
        for first in range(0, 1_800, 90)
    ]
    with on_the_loop(patterns_module._Automaton, "__init__", monkeypatch) as made:
        subscribe(attacker, criteria=wishes)
        await until(lambda: errors_of(attacker))
        assert made == {"loop": 0, "elsewhere": 0}
    (told,) = errors_of(attacker)
    assert (told["code"], told["option"], told["limit"]) == ("TOO_COSTLY", "subscription_weight", 50_000)
    assert told["cost"] > told["limit"]
    assert "literal" in told["cheaper"]
    await committed(log, link, until)


async def test_patterns_within_the_weight_are_read_and_made_off_the_loop_and_match_in_bounded_steps(
    log, connected, until, monkeypatch
):
    """F147: without `inline_weight` automata are made on the loop, without the cache each text is read again, and without the bound of places a key costs more."""
    link, attacker = healthy(connected), connected()
    with (
        on_the_loop(patterns_module._Parser, "parse", monkeypatch) as parsed,
        on_the_loop(patterns_module._Automaton, "__init__", monkeypatch) as made,
    ):
        subscribe(
            attacker,
            criteria=[
                {"key_patterns": [f"{one}{filler}" for one in EXPLODING for filler in ("", "x?" * 10)]}
            ],
        )
        await until(
            lambda: "subscribed" in [message["type"] for message in attacker.messages] or errors_of(attacker)
        )
    assert not errors_of(attacker)
    assert parsed["loop"] + parsed["elsewhere"] == 14  # each text once
    assert made == {"loop": 0, "elsewhere": 14}
    steps, after = [], patterns_module._Automaton._after
    monkeypatch.setattr(patterns_module._Automaton, "_after", lambda *given: steps.append(1) or after(*given))
    await committed(log, link, until, count=20)
    # Of 14 patterns and two keys of 64 bytes together; what was found is remembered from the second commit on.
    assert len(steps) <= 14 * 64


async def test_conditions_without_an_equality_cost_each_commit_a_bounded_number_of_questions(
    log, connected, until, monkeypatch
):
    """F147: without `DETACH_WEIGHT` and `ATTACHED_WEIGHT` a commit asks all of them; the attackers get what is theirs nevertheless."""
    link, attackers, asked = healthy(connected), [connected() for _ in range(4)], {}
    test = Where.test

    def counted(condition):
        holds = test(condition)

        def asking(value):
            here = threading.current_thread()
            asked[here.name] = asked.get(here.name, 0) + 1
            return holds(value)

        return asking

    monkeypatch.setattr(Where, "test", counted)
    for number, attacker in enumerate(attackers):
        for name in range(40):
            wishes = [
                {
                    "where": [
                        {"path": "n", "compare": "NE", "value": f"{number}/{name}/{wish}/{n}"}
                        for n in range(50)
                    ]
                }
                for wish in range(6 if name < 20 else 2)
            ]
            subscribe(attacker, f"{name}", credits=1_000, criteria=wishes)
    await until(lambda: log.statistics(listed=0).publisher_count == 161)
    told = log.statistics(listed=0)
    assert told.attached_weight <= 2_048
    assert told.match_weight == 4 * 20 * 400
    asked.clear()
    versions = [(await log.commit_async([upsert("order", "mine", {"n": "x"})])).version for _ in range(3)]
    await until(lambda: len(events_of(link)) == 3)
    assert [event["version"] for event in events_of(link)] == versions
    assert sum(count for name, count in asked.items() if "replay" not in name) <= 3 * 2_048
    await until(lambda: all(len(events_of(attacker)) == 40 * 3 for attacker in attackers))
    assert sum(asked.values()) > 3 * 20_000


async def test_a_heavy_wish_is_compiled_and_entered_off_the_loop(log, connected, until, monkeypatch):
    """F147: without `inline_weight`, and without `ChangeFeed.prepare`, the loop does what belongs to a thread."""
    link, attacker = healthy(connected), connected()
    with (
        on_the_loop(Predicate, "__init__", monkeypatch) as compiled,
        on_the_loop(Table, "put", monkeypatch) as put,
        on_the_loop(Criteria, "of", monkeypatch) as read,
    ):
        wishes = [{"keys": [str(n) for n in range(first, first + 5_000)]} for first in (0, 5_000)]
        for name in ("first", "second"):  # the second finds the publisher there, and has nothing made
            subscribe(attacker, name, criteria=wishes)
            await until(
                lambda name=name: (
                    ("subscribed", name) in [(one["type"], one["id"]) for one in attacker.messages[1:]]
                )
            )
            assert (compiled, put) == ({"loop": 0, "elsewhere": 1}, {"loop": 0, "elsewhere": 10_000})
        assert len(log.statistics().publishers) == 2
        assert read["loop"] == 0
    await committed(log, link, until)


async def test_a_connection_and_a_server_take_no_more_than_their_weight_and_give_all_of_it_back(
    log, connected, until
):
    """F147: without `connection_weight` and `criteria_weight` subscriptions of many keys gather for ever."""
    link = healthy(connected)
    server = ServerWeight(30_000)
    attackers = [connected(weight=server, subscription_weight=10_000, heaviest=2) for _ in range(3)]
    for number, attacker in enumerate(attackers):
        for turn in range(20):
            keys = [f"{number}/{turn}/{n}" for n in range(1_000)]
            subscribe(attacker, str(turn), criteria=[{"keys": keys}])
        await until(lambda one=attacker: len(errors_of(one)) + _subscribed(one) == 20)
    assert {one["code"] for attacker in attackers for one in errors_of(attacker)} == {"TOO_COSTLY"}
    assert {one["option"] for attacker in attackers for one in errors_of(attacker)} == {
        "connection_weight",
        "criteria_weight",
    }
    assert [_subscribed(attacker) for attacker in attackers] == [9, 5, 0]
    assert len(log.statistics().publishers) == 15
    await committed(log, link, until)
    for attacker in attackers:
        attacker.receiver.lost()
    assert server.weight == 0
    await until(lambda: len(log.statistics().publishers) == 1)
    await committed(log, link, until)


def _subscribed(link):
    return sum(message["type"] == "subscribed" for message in link.messages)


async def test_an_attacker_that_has_gone_leaves_its_memory_behind_it(log, connected, until):
    """F147: what is traced is back within a tenth of what the attack took."""
    link = healthy(connected)
    await leaves_nothing(lambda: _attack(log, connected, until), lambda: committed(log, link, until))


async def _attack(log, connected, until):
    attacker = connected()
    for turn in range(20):
        subscribe(attacker, str(turn), criteria=[{"keys": [f"{turn}/{n}" for n in range(700)]}])
    await until(lambda: _subscribed(attacker) == 20)
    attacker.receiver.lost()
    await until(lambda: len(log.statistics().publishers) == 1)


async def test_subscribing_and_leaving_again_and_again_lets_no_work_gather(
    log, connected, until, monkeypatch
):
    """F147: a client that never waits; one thread of the pool, and no more pieces of work than it has subscriptions."""
    link, attacker = healthy(connected), connected(subscriptions=5)
    wish = [{"keys": [str(n) for n in range(2_000)]}]
    with on_the_loop(Predicate, "__init__", monkeypatch) as compiled:
        for turn in range(300):
            subscribe(attacker, str(turn), criteria=wish)
            say(attacker, type="complete", id=str(turn))
            assert len(attacker.receiver._jobs._waiting) <= 5
        await committed(log, link, until)
        assert compiled["loop"] == 0
        assert compiled["elsewhere"] <= 10
    assert attacker.receiver._weight.weight == 0


async def test_the_text_of_a_refusal_is_short_whatever_was_asked_for(log, connected, until):
    """F147."""
    attacker = connected()
    subscribe(attacker, criteria=[{"keys": ["k" * 900_000] * 100}])
    subscribe(attacker, "b", criteria=[{}] * 300_000)
    await until(lambda: len(errors_of(attacker)) == 2)
    assert all(len(json.dumps(one)) < 1_000 and one["code"] == "TOO_COSTLY" for one in errors_of(attacker))
    assert sys.getsizeof(attacker.receiver._subscribers) < 1_000


PIECES = ["(", ")", "a", "b*", ".", "[a-z]", "{0,9}", "|", "+", "?", "*", "{200}", "\\d", "]", "x?", "(?:"]


def _text(chance, most):
    return "".join(chance.choice(PIECES) for _ in range(int(chance.paretovariate(0.7)) % most))


def _wish(chance):
    """A wish of random size in random fields, often malformed, and at times absurdly large."""
    sizes = [0, 1, 2, 60, 255, 256, 257, 3_000, 30_000]
    wish = {}
    for field in chance.sample(
        ["entity_types", "keys", "key_globs", "key_patterns", "changed"], chance.randrange(1, 4)
    ):
        count = chance.choice(sizes)
        distinct = [_text(chance, 90) + str(number) for number in range(min(count, 300))] or [""]
        wish[field] = [distinct[number % len(distinct)] for number in range(count)]
    if not chance.randrange(3):
        values = list(range(chance.choice(sizes)))
        wish["where"] = [
            {"path": "a", "compare": chance.choice(["IN", "EQ", "GT"]), "value": chance.choice([values, 1])}
        ]
    return wish


@pytest.mark.parametrize("seed", range(scaled(8)))
async def test_random_wishes_cost_bounded_steps_of_the_loop_and_of_the_lock(
    log, connected, until, monkeypatch, seed
):
    """F147: whatever is asked for, the loop enters at most what is inline, and the healthy subscriber has every change."""
    chance, link, attacker = Random(seed), healthy(connected), connected()
    limits, wishes = Limits(), 60
    with (
        on_the_loop(Table, "put", monkeypatch) as put,
        on_the_loop(patterns_module._Automaton, "_add", monkeypatch) as added,
    ):
        for number in range(wishes):
            before = put["loop"], added["loop"]
            subscribe(
                attacker, str(number), criteria=[_wish(chance) for _ in range(chance.choice([1, 1, 3]))]
            )
            assert put["loop"] - before[0] <= INLINE_WEIGHT + 256
            assert added["loop"] - before[1] <= INLINE_WEIGHT
            if not number % 20:
                await committed(log, link, until)
        await until(lambda: len(errors_of(attacker)) + _subscribed(attacker) == wishes)
    assert {one["code"] for one in errors_of(attacker)} <= {"TOO_COSTLY", "INVALID_CRITERIA"}
    assert attacker.receiver._weight.weight <= limits.connection_weight
    await committed(log, link, until)
    attacker.receiver.lost()
    await until(lambda: len(log.statistics().publishers) == 1)
    await committed(log, link, until)


FOLLOW = "subscription ($c: [Criterion!]) { onChange(criteria: $c) { version } }"
PAGE = "query ($c: [Criterion!]) { history(criteria: $c) { changes { version } } }"


async def test_criteria_over_graphql_have_the_same_weight_and_limits(log, connected, until, monkeypatch):
    """F147: of subscriptions, which are compiled on a thread, and of queries, which give back nothing as they take nothing."""
    link, server = healthy(connected), ServerWeight(30_000)
    attacker, limits = FakeLink(), Limits(**without_bounds({"variable_values": 200_000}))
    attacker.receiver = GraphQLDriver(
        Engine({"shop": log}, limits), attacker, limits=limits, loop=asyncio.get_running_loop(), weight=server
    )
    say(attacker, type="connection_init")

    def ask(name, query, **wish):
        say(attacker, type="subscribe", id=name, payload={"query": query, "variables": {"c": [wish]}})

    def told():
        return {one["id"]: one["payload"] for one in attacker.messages if one["type"] in ("error", "next")}

    many, some = [str(n) for n in range(60_000)], [str(n) for n in range(9_000)]
    with on_the_loop(Predicate, "__init__", monkeypatch) as compiled:
        ask("follow", FOLLOW, keys=many)
        ask("page", PAGE, keys=many)
        ask("patterns", FOLLOW, keyPatterns=[f"[a-z]{{{n}}}" for n in range(100, 199)])
        ask("first", FOLLOW, keys=some)
        ask("second", FOLLOW, keys=[f"{key}x" for key in some])
        await until(lambda: len(told()) == 4 and len(log.statistics().publishers) == 2)
        assert compiled == {"loop": 0, "elsewhere": 1}
    options = {name: error["extensions"]["option"] for name, (error,) in _refused(told())}
    assert options == {
        "follow": "subscription_weight",
        "patterns": "subscription_weight",
        "second": "criteria_weight",
    }
    assert told()["page"]["errors"][0]["extensions"]["code"] == "TOO_COSTLY"
    await committed(log, link, until)
    attacker.receiver.lost()
    assert server.weight == 0
    await until(lambda: len(log.statistics().publishers) == 1)


def _refused(told):
    return [(name, payload) for name, payload in told.items() if isinstance(payload, list)]
