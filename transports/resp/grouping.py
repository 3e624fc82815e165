"""``CDC.GROUP``, ``CDC.ACK``, ``CDC.NACK``, ``CDC.PENDING`` and ``CDC.CLAIM``: consumers that share the changes of a log.

A thin layer over ``log.groups``. Work that may wait for the disk runs on threads; a read that waits for a change occupies
none.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from publishers.errors import HistoryPruned, PenstockError
from publishers.groups.errors import ConsumerFenced
from publishers.model.position import Position, Start
from transports.access.grant import Grant, LogAction
from transports.resp.arguments import CommandArguments
from transports.resp.client import RespClient
from transports.resp.kora import criteria_of_pattern, kora_event
from transports.resp.port import RESP_EVENTS, RespPort
from transports.resp.replies import Encoded, RespError, SimpleString, encode_reply, shown
from transports.resp.sequence import NEWEST, position_of_sequence, sequence_of

if TYPE_CHECKING:
    from publishers.groups import ConsumerGroup, GroupDelivery, GroupMember
    from publishers.log.changelog import ChangeLog

__all__ = ["acknowledge", "claim", "group_", "list_pending", "refuse"]

_T = TypeVar("_T")
_OK: Final = SimpleString("OK")
_MILLIS_MAX: Final = 2**31 - 1
_ORDERINGS: Final = ("key", "none", "global")
_GAPS: Final = ("error", "earliest", "latest")


@dataclass(slots=True)
class _Named:
    """The log and the group that a command names.

    Attributes:
        key: The name of the log.
        group: The name of the group.
        log: The log, once access is authorised.
        grant: What the client may do with it.
    """

    key: str
    group: str
    log: "ChangeLog" = field(init=False)
    grant: Grant = field(init=False)

    @classmethod
    def of(cls, given: CommandArguments) -> "_Named":
        return cls(given.text("key"), given.text("group"))

    async def check(self, port: RespPort, client: RespClient) -> None:
        """Finds the log, if the client may use a group of this name, which need not exist.

        Raises:
            Forbidden, LogNotFound, Unauthenticated, NotAuthenticated: As ``RespPort.find``.
        """
        _, self.log, self.grant = await port.find(client, self.key, LogAction.CONSUME)
        self.grant.check_group(self.group)

    def open(self) -> "ConsumerGroup":
        """Opens the group; on a thread."""
        return self.log.groups.open(self.group)


async def group_(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CDC.GROUP CREATE | READ | LEAVE | INFO``."""
    word = given.raw("subcommand").upper()
    subcommands = {b"CREATE": _create, b"READ": _read, b"LEAVE": _leave, b"INFO": _info}
    if word not in subcommands:
        right = b", ".join(subcommands).decode()
        raise RespError("ERR", f"unknown subcommand {shown(word)} of CDC.GROUP, which must be one of {right}")
    return await subcommands[word](port, client, given)


async def _create(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CREATE key group sequence [MATCH pattern] [ORDERING ...] [ACKWAIT ms] [MAXDELIVER n] [ONGAP ...]``."""
    named, place = _Named.of(given), given.raw("start_seq")
    start: Any = Start.LATEST if place == NEWEST else position_of_sequence("start_seq", place)
    if isinstance(start, Position) and start.version == 0:
        start = Start.EARLIEST
    pattern: list[bytes] = []
    options: dict[str, Any] = {}
    given.options(
        {
            "MATCH": lambda: pattern.append(given.raw("MATCH")),
            "ORDERING": lambda: options.update(ordering=_word(given, "ORDERING", _ORDERINGS)),
            "ACKWAIT": lambda: options.update(ack_wait=given.whole("ACKWAIT", 1, _MILLIS_MAX) / 1000),
            "MAXDELIVER": lambda: options.update(max_deliver=given.whole("MAXDELIVER", 1, 1_000_000)),
            "ONGAP": lambda: options.update(on_gap=_word(given, "ONGAP", _GAPS)),
        }
    )
    criteria = criteria_of_pattern(pattern[0] if pattern else None)
    await named.check(port, client)

    def work(_: object) -> SimpleString:
        oldest = named.log.oldest
        if isinstance(start, Position) and start < oldest:
            raise HistoryPruned(oldest)
        named.grant.check_room(named.log, "groups")
        named.log.groups.create(named.group, criteria, since=start, **options)
        return _OK

    return await port.scan(client, work)


@dataclass(slots=True)
class _Attempt:
    """One attempt to read deliveries.

    Attributes:
        member: The consumer.
        found: The deliveries.
        reply: The encoded reply.
        due: Seconds until a delivery becomes due without a notification; None if never, or without a watch.
        end: Ends the watch.
    """

    member: "GroupMember"
    found: "list[GroupDelivery]"
    reply: Encoded
    due: float | None
    end: Callable[[], None]

    def undo(self) -> None:
        """Returns the deliveries to the group, because the client has left before the reply: they are due at once, and the attempt does not count."""
        self.end()
        _give_back(self.member, self.found)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The arguments of a read.

    Attributes:
        port: The state that all connections share.
        named: The group.
        consumer: The name of the consumer.
        most: The most deliveries.
        history: Whether the consumer's unacknowledged deliveries come again first.
        version: The version of the protocol.
    """

    port: RespPort
    named: _Named
    consumer: str
    most: int
    history: bool
    version: int

    def look(self, notify: Callable[[], None] | None) -> _Attempt:
        """Reads deliveries, on a thread.

        Args:
            notify: Called when another attempt is worthwhile; None for no watch.
        """
        return _as_member(self.port, self.named, self.consumer, partial(self._look, notify))

    def _look(self, notify: Callable[[], None] | None, member: "GroupMember") -> _Attempt:
        due, end = (None, lambda: None) if notify is None else member.watch(notify)
        found: list[GroupDelivery] = []
        try:
            found = member.read(self.most, history=self.history, wait=0.0)
            return _Attempt(member, found, _events(found, self.version), due, end)
        except BaseException:
            end()
            _give_back(member, found)
            raise


async def _read(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``READ key group consumer count [BLOCK ms] [HISTORY]``."""
    named, consumer = _Named.of(given), given.text("consumer")
    most = min(given.whole("count", 1, _MILLIS_MAX), RESP_EVENTS)
    chosen: dict[str, Any] = {"BLOCK": 0, "HISTORY": False}
    given.options(
        {
            "BLOCK": lambda: chosen.update(BLOCK=given.whole("BLOCK", 0, _MILLIS_MAX)),
            "HISTORY": lambda: chosen.update(HISTORY=True),
        }
    )
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    until = port.until(client, chosen["BLOCK"])

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(woken.set)

    reading = _Reading(port, named, consumer, most, chosen["HISTORY"], client.version)
    watched: Callable[[], None] | None = None  # the first attempt needs no watch
    while True:
        await named.check(port, client)  # repeated after each wait, because access may have been revoked
        woken.clear()
        client.abandons = not client.ended  # deliveries are of use only to a client that can acknowledge them
        try:
            attempt = await port.take(client, partial(reading.look, watched), _Attempt.undo)
        finally:
            client.abandons = False
        try:
            if attempt.found or client.ended or loop.time() >= until:
                return attempt.reply
            if watched is not None:
                end = until if attempt.due is None else min(until, loop.time() + attempt.due)
                await port.wait(client, woken, end)
        finally:
            attempt.end()
        watched = notify


async def _leave(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``LEAVE key group consumer``: its deliveries are due at once. Returns 1 if it had joined."""
    named, consumer = _Named.of(given), given.text("consumer")
    given.done()
    await named.check(port, client)

    def work(_: object) -> int:
        group = named.open()
        member = port.members.find(named.log, group, consumer)
        if member is None:
            return 0
        port.members.forget(named.log, group, member)
        member.leave()
        return 1

    return await port.scan(client, work)


async def _info(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``INFO key group``."""
    named = _Named.of(given)
    given.done()
    await named.check(port, client)

    def work(_: object) -> dict[str, Any]:
        statistics = named.open().info()
        return {
            "name": statistics.name,
            "state": statistics.state.value,
            "floor": sequence_of(statistics.floor),
            "head": sequence_of(statistics.head),
            "consumers": list(statistics.consumers),
            "pending": statistics.pending,
            "due": statistics.due,
            "parked": statistics.parked,
            "acked": statistics.acked,
            "redelivered": statistics.redelivered,
            "dead": statistics.dead,
            "lost": statistics.lost,
            "lag": statistics.lag.changes,
            "lag_versions": statistics.lag.versions,
        }

    return await port.scan(client, work)


async def acknowledge(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CDC.ACK key group [CONSUMER name] [DURABLE] sequence [sequence ...]``: returns how many were newly acknowledged."""
    named = _Named.of(given)
    consumer, durable = None, False
    while (word := given.next_word()) is not None:
        if word == "CONSUMER" and consumer is None:
            consumer = given.text("CONSUMER")
        elif word == "DURABLE" and not durable:
            durable = True
        else:
            raise RespError(
                "ERR", f"syntax error: {word[:40]!a} must be a sequence number, CONSUMER or DURABLE"
            )
    await named.check(port, client)

    def work(_: object) -> int:
        places = _places(given)
        if consumer is None:
            return named.open().ack(*places, durable=durable)
        return _as_known(port, named, consumer, lambda member: member.ack(*places, durable=durable))

    return await port.scan(client, work)


async def refuse(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CDC.NACK key group consumer [DELAY ms] [NOCOUNT] sequence [sequence ...]``: returns how many were pending."""
    named, consumer = _Named.of(given), given.text("consumer")
    delay, counts = None, True
    while (word := given.next_word()) is not None:
        if word == "DELAY" and delay is None:
            delay = given.whole("DELAY", 0, _MILLIS_MAX) / 1000
        elif word == "NOCOUNT" and counts:
            counts = False
        else:
            raise RespError("ERR", f"syntax error: {word[:40]!a} must be a sequence number, DELAY or NOCOUNT")
    await named.check(port, client)

    def work(_: object) -> int:
        places = _places(given)
        return _as_known(port, named, consumer, lambda member: member.nack(places, delay, count=counts))

    return await port.scan(client, work)


async def list_pending(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CDC.PENDING key group [START sequence] [COUNT n] [CONSUMER name] [MINIDLE ms] [WITHCOUNTS]``."""
    named = _Named.of(given)
    chosen: dict[str, Any] = {"limit": RESP_EVENTS}
    counted: list[bool] = []
    given.options(
        {
            "START": lambda: chosen.update(start=position_of_sequence("START", given.raw("START"))),
            "COUNT": lambda: chosen.update(limit=min(given.whole("COUNT", 1, _MILLIS_MAX), RESP_EVENTS)),
            "CONSUMER": lambda: chosen.update(consumer=given.text("CONSUMER")),
            "MINIDLE": lambda: chosen.update(min_idle=given.whole("MINIDLE", 0, _MILLIS_MAX) / 1000),
            "WITHCOUNTS": lambda: counted.append(True),
        }
    )
    await named.check(port, client)

    def work(_: object) -> Encoded:
        rows = named.open().pending_rows(**chosen)
        told = [
            [sequence_of(row.position), row.consumer, int(row.idle * 1000), *([row.count] if counted else [])]
            for row in rows
        ]
        return Encoded(encode_reply(told, client.version))

    return await port.scan(client, work)


async def claim(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CDC.CLAIM key group consumer min-idle-ms [START sequence] [COUNT n] [JUSTID] [sequence ...]``: returns next, events, lost."""
    named, consumer = _Named.of(given), given.text("consumer")
    idle = given.whole("min-idle-time", 0, _MILLIS_MAX) / 1000
    chosen: dict[str, Any] = {}
    while (word := given.next_word()) is not None:
        if word in chosen or word not in ("START", "COUNT", "JUSTID"):
            raise RespError(
                "ERR",
                f"syntax error: {word[:40]!a} must be a sequence number, or once START, COUNT or JUSTID",
            )
        if word == "START":
            chosen[word] = position_of_sequence(word, given.raw(word))
        elif word == "COUNT":
            chosen[word] = min(given.whole(word, 1, _MILLIS_MAX), RESP_EVENTS)
        else:
            chosen[word] = True
    await named.check(port, client)

    def take(places: list[Position] | None, member: "GroupMember") -> Encoded:
        only_ids = "JUSTID" in chosen
        found = member.claim(
            idle, places, start=chosen.get("START"), limit=chosen.get("COUNT", 100), only_ids=only_ids
        )
        following = 0 if found.next is None else sequence_of(found.next)
        reply = (
            [sequence_of(one.position) for one in found.deliveries]
            if only_ids
            else _events(found.deliveries, client.version)
        )
        lost = [sequence_of(one) for one in found.lost]
        return Encoded(encode_reply([following, reply, lost], client.version))

    def work(_: object) -> Encoded:
        return _as_member(port, named, consumer, partial(take, _places(given) if given.left else None))

    return await port.scan(client, work)


def _as_member(port: RespPort, named: _Named, consumer: str, work: Callable[["GroupMember"], _T]) -> _T:
    """Runs work as a consumer, which joins if it has not.

    If the consumer was removed because it was silent for too long or the group was moved, it joins again and the work is
    repeated.
    """
    group = named.open()
    while True:
        member = port.members.get(named.log, group, consumer)
        try:
            return work(member)
        except ConsumerFenced as error:
            port.members.forget(named.log, group, member)
            if (
                error.current > error.generation
            ):  # another consumer of the name has joined elsewhere: the error is reported once, after which this one may join again
                raise


def _as_known(port: RespPort, named: _Named, consumer: str, work: Callable[["GroupMember"], _T]) -> _T:
    """Runs work as a consumer that has joined here. Once it is told that it has been replaced, it may join again.

    Raises:
        RespError: If it has not joined.
    """
    group = named.open()
    member = port.members.find(named.log, group, consumer)
    if member is None:
        raise RespError("FENCED", f"consumer {consumer[:80]!a} has not read here, or was removed; read again")
    try:
        return work(member)
    except ConsumerFenced as error:
        if error.current > error.generation:
            port.members.forget(named.log, group, member)
        raise


def _give_back(member: "GroupMember", found: "Iterable[GroupDelivery]") -> None:
    """Returns deliveries that could not be sent to the group: they are due at once, and the attempt does not count."""
    with contextlib.suppress(PenstockError):
        member.give_back(found)


def _events(found: "Iterable[GroupDelivery]", version: int) -> Encoded:
    return Encoded(encode_reply([kora_event(change) for one in found for change in one.changes], version))


def _places(given: CommandArguments) -> list[Position]:
    """Consumes sequence numbers, at least one; on a thread, because there may be thousands."""
    return [position_of_sequence("sequence", given.raw("sequence")) for _ in range(max(given.left, 1))]


def _word(given: CommandArguments, name: str, known: tuple[str, ...]) -> str:
    word = given.text(name).lower()
    if word not in known:
        raise RespError("ERR", f"{name} is {word[:40]!a}, but must be one of {', '.join(known)}")
    return word
