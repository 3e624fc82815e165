"""The bounds of what clients can cost: mutants without one of them each, and short trials that must notice.

A trial asks for a little more than is allowed, and counts. What the whole server does is for ``tests/attacks``.
"""

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock
from unittest.mock import Mock

from publishers.criteria.cost import weigh
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.index import DIRECT, SWEPT, MatchingIndex, prepare
from publishers.criteria.index_table import Tables
from publishers.criteria.patterns import Pattern, PatternError
from publishers.criteria.predicate import Predicate
from publishers.errors import TooCostly
from publishers.fanout.dispatch import DispatchPool
from tests.harness.constants import set_bounds
from tests.harness.inside import lock_of
from tests.mutants.patching import Mutant
from tests.publishers.support import wait_until
from transports import Limits
from transports.codec.messages import check_weight
from transports.quotas.weight import ConnectionWeight, ServerWeight

__all__ = ["BOUNDING", "BOUNDS"]


def _refused(option: str, ask: Callable[[], object]) -> None:
    found = None
    try:
        ask()
    except TooCostly as error:
        found = error.option
    assert found == option


def _keys(count: int, name: object = "") -> Criteria:
    return Criteria.of(Criterion(keys=[f"{name}{number}" for number in range(count)]))


def _cost(seed: int) -> None:
    """Criteria above the weight of a subscription, of a connection and of a server; a few patterns among them."""
    set_bounds(heaviest=2)
    limits = Limits(subscription_weight=1_000, criteria_weight=3_000)
    _refused("subscription_weight", lambda: check_weight(weigh(_keys(1_000)), limits))
    heavy = Criteria.of(Criterion(key_patterns=[f"[a-z]{{100}}{seed}"]))
    _refused("subscription_weight", lambda: check_weight(weigh(heavy), limits))
    server = ServerWeight(limits.criteria_weight)
    connections = [ConnectionWeight(limits.connection_weight, server) for _ in range(3)]
    refused = set()
    for number, connection in enumerate(connections):
        for turn in range(30):
            criteria = _keys(50, f"{number}/{turn}/")
            try:
                connection.take(turn, "log", criteria, weigh(criteria))
            except TooCostly as error:
                refused.add(error.option)
            assert connection.weight <= limits.connection_weight
            assert server.weight <= limits.criteria_weight
    assert refused == {"connection_weight", "criteria_weight"}
    for connection in connections:
        for turn in range(30):
            connection.give(turn)
    assert server.weight == 0


def _patterns(seed: int) -> None:
    """A pattern of too many places, and keys that let an automaton remember as much as they can."""
    with contextlib.suppress(PatternError):
        raise AssertionError(Pattern(f"(a{{{90 + seed % 9}}}){{9}}").places)
    assert Pattern.of("(a|b)*c") is Pattern.of("(a|b)*c")
    pattern, draw = Pattern("(.*[ab].{20})*"), random.Random(seed)
    matches = pattern.prepare()
    for _ in range(60):
        matches("".join(draw.choice("abcdefgh") for _ in range(60)).encode())
    matches("".join(map(chr, range(0x100, 0x800))).encode())
    automaton: Any = pattern._automaton
    assert max(len(automaton._followers), len(automaton._masks)) <= 512


def _registry(seed: int) -> None:
    """What enters and leaves the index under the lock takes so many steps at most."""
    assert len(prepare(Predicate(_keys(DIRECT + 1 + seed))).placed) <= DIRECT
    index: MatchingIndex[int] = MatchingIndex((Predicate(_keys(200, f"{n}/")), n) for n in range(50))
    for number in range(50):
        index.retire(_keys(200, f"{number}/"))
    steps, drop = [], Tables.drop
    with mock.patch.object(Tables, "drop", lambda *given: steps.append(1) or drop(*given)):
        index.sweep()
    assert len(steps) <= SWEPT + DIRECT


def _graphql(_seed: int) -> None:
    """Documents, variables, pages and answers that are too large."""
    from graphql import ExecutionResult, parse

    from transports.graphql.cost import check_document, check_text, check_variables
    from transports.graphql.execution import Engine
    from transports.graphql.schema import Context

    set_bounds(history_bytes=1_000, variable_values=100, document_bytes=10_000)
    _refused("document_bytes", lambda: check_text("x" * 10_001))
    _refused("variable_values", lambda: check_variables({"a": [1] * 101}))
    for option, text in (
        ("document_aliases", "{" + "".join(f"a{n}: x " for n in range(33)) + "}"),
        ("document_depth", "{a" * 33 + "}" * 33),
        ("document_fields", "{" + "".join(f"x{n} " for n in range(1_001)) + "}"),
        ("document_pairs", "{" + "x " * 250 + "}"),
    ):
        _refused(option, lambda text=text: check_document(parse(text)))
    asked = Context({}, Limits(answer_bytes=2_000))
    assert asked.page_bytes() == 1_000
    asked.left = 300
    assert asked.page_bytes() == 300
    asked.left = 0
    _refused("answer_bytes", asked.page_bytes)
    engine: Any = SimpleNamespace(_limits=asked.limits, refused=0)
    assert len(Engine.answer(engine, ExecutionResult({"x": ["y" * 100] * 100}))) < 1_000


class _Loop:
    """Runs what is due when it is told to."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()

    def call_later(self, _delay: float, call: Callable[[], None]) -> Any:
        self.due.append(call)
        return Mock()

    def time(self) -> float:
        return 0.0


def _unsent(_seed: int) -> None:
    """A reader of an answer over HTTP that takes nothing: one piece waits for it, and it is cut off."""
    import uvicorn
    from uvicorn.server import ServerState

    from transports.server.http_protocol import HttpProtocol

    loop: Any = _Loop()
    transport = Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.get_write_buffer_size.return_value = 70_000
    config = uvicorn.Config(lambda: None, log_config=None)
    config.load()
    one = HttpProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    transport.get_protocol.return_value = one
    ended = []
    one.ended = ended.append
    one.connection_made(transport)
    transport.set_write_buffer_limits.assert_called_once_with(high=0)
    one.pause_writing()
    for _ in range(10):
        look = loop.due.popleft() if loop.due else None
        if look and look != one._give_up:  # which is for those that ask nothing
            look()
    assert transport.abort.called
    assert ended == ["HTTP_STALLED"]


def _frames(_seed: int) -> None:
    """A flood of frames: so many are handled in one turn, and so many in a second."""
    from websockets.frames import Frame, Opcode

    from transports.server.ws_protocol import LinkProtocol

    closed: list[object] = []
    one = SimpleNamespace(
        _tokens=200.0, _refilled=0.0, _frame_rate=100, _flooded=False, _unread=bytearray(), _events=deque()
    )
    one.close = lambda code, _why: closed.append(code)
    one.loop = SimpleNamespace(time=lambda: 3_600.0)
    LinkProtocol._refill(one)  # after an hour of silence
    handled = 0
    while not closed:
        LinkProtocol._admit(one)
        handled += 1
        assert handled <= 201
    handled = 0

    def frame(_event: object) -> None:
        nonlocal handled
        handled += 1

    turn = SimpleNamespace(
        _reading=True,
        _behind=False,
        _unread=bytearray(),
        _events=deque([Frame(Opcode.PING, b"")] * 1_000),
        _refill=Mock(),
        _parse=lambda: False,
        _admit=Mock(),
        _frame=frame,
        _collect=Mock(),
        flush=Mock(),
        _transport=Mock(),
        loop=Mock(),
        _conn=SimpleNamespace(parser_exc=None),
        _wait_for_turn=Mock(),
    )
    LinkProtocol._handle(turn)
    assert handled == 64
    turn._wait_for_turn.assert_called_once()


def _dispatch(_seed: int) -> None:
    """Subscribers that block: the pool grows for the others, to its bound and not beyond."""
    pool, go_on, begun = DispatchPool(1, 3, "bounds"), threading.Event(), []
    try:
        for number in range(8):
            pool.submit(lambda number=number: begun.append(number) or go_on.wait(60))
        wait_until(lambda: len(begun) == 3, timeout=60)
        for _ in range(8):
            with lock_of(pool):
                pool._watch_if_needed()
                assert not pool._watched, "nobody looks whether one more is needed"
        assert (pool.threads, len(begun)) == (3, 3)
    finally:
        go_on.set()
        pool.shutdown()


BOUNDS: dict[str, Callable[[int], None]] = {
    "cost": _cost,
    "patterns": _patterns,
    "registry": _registry,
    "graphql": _graphql,
    "unsent": _unsent,
    "frames": _frames,
    "dispatch": _dispatch,
}
"""Each raises if a bound does not hold."""


def _mutant(name: str, killer: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, where, old, new, (killer,), most=2)


BOUNDING = [
    _mutant(
        "weight of a subscription not bounded",
        "cost",
        "transports.codec.messages:check_weight",
        "if cost.weight > limits.subscription_weight:",
        "if False:",
    ),
    _mutant(
        "weight of a connection not bounded",
        "cost",
        "transports.quotas.weight:ConnectionWeight.take",
        "if cost.weight > left:",
        "if False:",
    ),
    _mutant(
        "weight of a server not bounded",
        "cost",
        "transports.quotas.weight:ServerWeight.take",
        "if weight > left:",
        "if False:",
    ),
    _mutant(
        "weight not given back",
        "cost",
        "transports.quotas.weight:ServerWeight.give",
        "self.weight -= weight",
        "pass",
    ),
    _mutant(
        "places of a pattern weigh nothing",
        "cost",
        "publishers.criteria.cost:_weigh",
        "_PLACE * (pattern.places - head)",
        "0",
    ),
    _mutant(
        "places of a pattern not bounded",
        "patterns",
        "publishers.criteria.patterns:Pattern.__init__",
        "if self.places > _PLACES:",
        "if False:",
    ),
    _mutant(
        "an automaton remembers everything",
        "patterns",
        "publishers.criteria.patterns:_Automaton._after",
        "if len(self._followers) >= _MEMO:",
        "if False:",
    ),
    _mutant(
        "an automaton remembers every character",
        "patterns",
        "publishers.criteria.patterns:_Automaton._mask",
        "if len(self._masks) >= _MEMO:",
        "if False:",
    ),
    _mutant(
        "large criteria entered place by place",
        "registry",
        "publishers.criteria.index:Prepared.__init__",
        "alone = self.size > direct",
        "alone = False",
    ),
    _mutant(
        "all that has left is swept at once",
        "registry",
        "publishers.criteria.index:MatchingIndex.sweep",
        "while self.leaving and steps < SWEPT:",
        "while self.leaving:",
    ),
    _mutant(
        "documents not bounded",
        "graphql",
        "transports.graphql.cost:_Count._check",
        "if found > limit:",
        "if False:",
    ),
    _mutant(
        "variables not bounded",
        "graphql",
        "transports.graphql.cost:check_variables",
        "if found > VARIABLE_VALUES:",
        "if False:",
    ),
    _mutant(
        "answers not bounded",
        "graphql",
        "transports.graphql.execution:Engine.answer",
        "if nbytes > most:",
        "if False:",
    ),
    _mutant(
        "pages of one answer not bounded together",
        "graphql",
        "transports.graphql.schema:Context.page_bytes",
        "if self.left <= 0:",
        "if False:",
    ),
    _mutant(
        "a page not bounded in bytes",
        "graphql",
        "transports.graphql.schema:Context.page_bytes",
        "min(HISTORY_BYTES, self.left)",
        "self.left",
    ),
    _mutant(
        "all of an answer unsent",
        "unsent",
        "transports.server.http_protocol:HttpProtocol.connection_made",
        "wait_for_all(transport)",
        "pass",
    ),
    _mutant(
        "nobody watches who does not read an answer",
        "unsent",
        "transports.server.http_protocol:HttpProtocol.pause_writing",
        "self._watch.start()",
        "pass",
    ),
    _mutant(
        "a stalled peer is not cut off",
        "unsent",
        "transports.server.watchdog:Watchdog._look",
        "if self._still >= _STEPS:",
        "if False:",
    ),
    _mutant(
        "frames not rated",
        "frames",
        "transports.server.ws_protocol:LinkProtocol._admit",
        "self._tokens -= 1",
        "pass",
    ),
    _mutant(
        "silence earns frames without end",
        "frames",
        "transports.server.ws_protocol:LinkProtocol._refill",
        "min(_BURST * self._frame_rate, self._tokens + earned)",
        "self._tokens + earned",
    ),
    _mutant(
        "all frames in one turn",
        "frames",
        "transports.server.ws_protocol:LinkProtocol._handle",
        "while self._events and self._reading and left:",
        "while self._events and self._reading:",
    ),
    _mutant(
        "dispatch threads do not grow",
        "dispatch",
        "publishers.fanout.dispatch:DispatchPool.submit",
        "self._watch_if_needed()",
        "pass",
    ),
    _mutant(
        "dispatch threads not bounded",
        "dispatch",
        "publishers.fanout.dispatch:DispatchPool._watch_if_needed",
        "and self._threads < self._most",
        "",
    ),
]
