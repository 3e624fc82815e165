"""Clients and servers that append, as machines without I/O, under every order of messages, cuts, restarts and refusals.

Of each transaction the end is that it was written once, or that its client was told a definite refusal and it was not written.
"""

import json
import random
from collections import deque

from penstock_cdc.errors import ExpectationFailed, LogFull, PredecessorFailed, TooCostly
from penstock_cdc.types import Commit
from publishers import Position
from tests.harness.scale import scaled
from transports.codec.replies import AppendedReply, SpooledReply
from transports.errors import RemoteError
from transports.limits import Limits
from transports.problems import describe
from transports.protocol.appends import Write
from transports.protocol.client_appends import AppendAnswered, ClientAppend, ClientAppends, ResumeAppends
from transports.protocol.connection import Close, Send
from transports.protocol.parts import BeginSpool, DropSpool, Spool, WriteSpool
from transports.protocol.server import ServerSession

LIMITS = Limits(appends=4, append_bytes=1_000, transaction_bytes=4_000)
TOLD = {"appends": 4, "appendBytes": 1_000, "messageBytes": 500, "transactions": 4}
PAD = "x" * 100


def cursor(version):
    return f"{'0' * 32}:1:{version}:0"


class Log:
    """What is durable: transactions in order, and of each producer the last sequence."""

    def __init__(self):
        self.written = []
        self.last = {}


class Connection:
    """One connection: messages under way in both directions, and what the server has not submitted yet."""

    def __init__(self, client, log, *, chained):
        self.session = ServerSession(LIMITS, server="model", now=0.0)
        self.session.receive('{"type":"connection_init"}', 0.0)
        self.session.acknowledge()
        self.client, self.log, self.chained = client, log, chained
        self.upward, self.downward, self.pipeline = deque(), deque(), deque()
        self.refused = set()
        self.spools, self.unstored = {}, deque()

    def act(self, action, chance):
        """One step of the server, if there is something to do."""
        if action == "up" and self.upward:
            self.take_up()
        elif action == "store" and self.unstored:
            self.store(chance)
        elif action == "submit" and self.pipeline:
            self.submit(chance)

    def take_up(self):
        for effect in self.session.receive(self.upward.popleft(), 0.0):
            assert not isinstance(effect, Close), effect
            match effect:
                case Write(entry, wish, changes):
                    self.pipeline.append((entry, wish, json.loads(changes)))
                case BeginSpool(transaction):
                    self.spools[transaction] = []
                case Spool(transaction, changes):
                    self.spools[transaction].append(json.loads(changes))
                    self.unstored.append((transaction, len(self.spools[transaction])))
                case DropSpool(transaction):
                    del self.spools[transaction]
                case WriteSpool(entry, wish, transaction):
                    parts = self.spools.pop(transaction)
                    self.pipeline.append((entry, wish, [change for part in parts for change in part]))
                case _:
                    self.downward.append(effect.data)

    def store(self, chance):
        """What the threads do that keep parts; the disk may be full."""
        transaction, parts = self.unstored.popleft()
        if chance.random() < 0.05:
            effects = self.session.part_failed(transaction, describe(LogFull(0, 1)))
        elif chance.random() < 0.05:
            effects = self.session.part_failed(
                transaction, describe(TooCostly("spooled_bytes", 1, 1, "later", left=0))
            )
        else:
            effects = self.session.spooled(transaction, parts)
        for effect in effects:
            if isinstance(effect, DropSpool):
                del self.spools[effect.entry]
            else:
                self.downward.append(effect.data)

    def submit(self, chance):
        """What the lane, the queue and the leader do with the next append of this connection."""
        entry, wish, changes = self.pipeline.popleft()
        log, error = self.log, None
        last = log.last.get(wish.producer, 0)
        if wish.sequence <= last:
            commit = Commit(1, duplicate=True, changes=0, committed_at=0)
        elif self.chained and entry.run in self.refused:
            error = PredecessorFailed()
        elif chance.random() < 0.05:
            error = LogFull(0, 1)
        elif wish.expect is not None and wish.expect.position.version <= len(log.written):
            error = ExpectationFailed(wish.expect.position, Position(len(log.written) + 1))
        else:
            assert [change["key"] for change in changes] == [changes[0]["key"]] * changes[0]["of"]
            log.written.append(changes[0]["key"])
            log.last[wish.producer] = wish.sequence
            commit = Commit(len(log.written), duplicate=False, changes=2, committed_at=1)
        if error is None:
            effects = self.session.appended(entry, commit, cursor(commit.version + 1))
        else:
            self.refused.add(entry.run)
            effects = self.session.append_failed(entry, describe(error, lambda place: cursor(place.version)))
        self.downward.extend(effect.data for effect in effects)


class Client:
    """A client of the machine under test, with one producer."""

    def __init__(self, name):
        self.name, self.sequence = name, 0
        self.machine = ClientAppends(lambda _: 0.0)
        self.connection = None
        self.answers, self.begun, self.resumes = {}, [], 0

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Send(data):
                    self.connection.upward.append(data)
                case AppendAnswered(entry, answer):
                    assert entry.id not in self.answers
                    self.answers[entry.id] = answer
                case ResumeAppends():
                    self.resumes += 1

    def begin(self, expect, size):
        self.sequence += 1
        key = f"{self.name}-{self.sequence}"
        changes = [{"key": key, "of": size, "pad": PAD}] * size
        payload = {"changes": changes, "producer": self.name, "sequence": self.sequence}
        if expect is not None:
            payload["expect"] = cursor(expect)
        self.begun.append(key)
        self.perform(self.machine.append(ClientAppend(key, payload)))

    def hear(self):
        message = json.loads(self.connection.downward.popleft())
        if message["type"] == "appended":
            fields = {name: message[name] for name in ("id", "version", "cursor", "duplicate", "changes")}
            self.perform(self.machine.answered(AppendedReply(**fields)))
        elif message["type"] == "spooled":
            self.perform(self.machine.spooled(SpooledReply(message["id"], message["parts"])))
        else:
            data = message["payload"]
            error = RemoteError(data["code"], "", retryable=data["retryable"], data=data)
            self.perform(self.machine.refused(message["id"], error))

    def cut(self):
        self.machine.lost()
        self.connection = None


def play(seed, *, chained=True, steps=400):
    """Plays one history to its end; answers what was written, and the clients."""
    chance = random.Random(seed)
    log, clients, lingering = Log(), [Client(name) for name in "abc"], []
    for step in range(steps + 12_000):
        quiet = step >= steps
        client = chance.choice(clients)
        if quiet and all(len(one.answers) == len(one.begun) for one in clients):
            return log, clients
        if client.connection is None:
            client.connection = Connection(client, log, chained=chained)
            client.perform(client.machine.began(TOLD))
            continue
        wire = client.connection
        action = chance.choice(
            ["begin", "up", "up", "store", "submit", "submit", "down", "down", "cut", "resume", "old"]
        )
        if action == "begin" and not quiet:
            size = chance.choice([1, 1, 1, 1, 2, 8, 40])
            client.begin(chance.choice([None, None, len(log.written) + 1, len(log.written)]) or None, size)
        elif action in ("up", "store", "submit"):
            wire.act(action, chance)
        elif action == "down" and wire.downward:
            client.hear()
        elif action == "resume" and client.resumes:
            client.resumes -= 1
            client.perform(client.machine.resume())
        elif action == "old" and lingering:
            chance.choice(lingering).submit(chance)  # what a cut connection had sent is written all the same
            lingering = [one for one in lingering if one.pipeline]
        elif action == "cut" and not quiet and chance.random() < 0.15:
            if chance.random() < 0.5:  # else the server died with it
                wire.upward.clear()
                lingering += [wire] if wire.pipeline else []
            client.cut()
    raise AssertionError(f"seed {seed}: not everything was answered")


def faults(seed, **options):
    log, clients = play(seed, **options)
    found = []
    for client in clients:
        for key in client.begun:
            answer, times = client.answers[key], log.written.count(key)
            refused = isinstance(answer, Exception)
            if refused and answer.outcome == "unknown":
                continue
            if times != (0 if refused else 1):
                found.append((seed, key, times, answer))
        mine = [key for key in log.written if key.startswith(client.name)]
        if mine != [key for key in client.begun if key in mine]:
            found.append((seed, "order", mine))
    return found


def test_every_transaction_is_written_once_or_definitely_refused():
    """F145: whatever is cut, refused, repeated or delayed."""
    for seed in range(scaled(300)):
        assert faults(seed) == []


def test_histories_have_what_they_are_to_try():
    """F145: refusals of each kind, repetitions and successes all occur."""
    codes, written = set(), 0
    for seed in range(30):
        log, clients = play(seed)
        written += len(log.written)
        for client in clients:
            codes |= {getattr(answer, "code", None) for answer in client.answers.values()}
    assert written > 300
    assert {"EXPECTATION_FAILED", "LOG_FULL", "TRANSACTION_TOO_LARGE", None} <= codes


def test_without_the_rule_of_refusals_transactions_are_lost():
    """F145: a server that writes what is behind a refusal makes repetitions look like duplicates."""
    assert any(faults(seed, chained=False) for seed in range(300))
