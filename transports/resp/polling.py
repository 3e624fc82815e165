"""``CDCPOLL``: changes from a sequence number on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from publishers.criteria.cost import weigh
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned
from publishers.log.history import History
from publishers.log.notification import NotifyingSubscriber
from publishers.model.position import Position
from publishers.views.view import Content, View
from transports.access.grant import narrow
from transports.quotas.pool import Turn
from transports.resp.arguments import CommandArguments
from transports.resp.client import RespClient
from transports.resp.kora import criteria_of_pattern, kora_event
from transports.resp.port import RESP_EVENTS, RespPort
from transports.resp.replies import Encoded, encode_reply
from transports.resp.sequence import NEWEST, position_of_sequence, sequence_of

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["poll", "woken"]

_VIEW = View.of(Content.BODY)


class _Waker(NotifyingSubscriber):
    """Wakes the command also if no change will ever come: its next attempt finds the reason."""

    def on_error(self, error: Exception, /) -> None:
        """Wakes the command."""
        self.on_complete()


async def poll(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """Returns events; see ``docs/resp.md``.

    Raises:
        RespError: If an argument is invalid.
        PenstockError: If the log cannot be read from the sequence on.
    """
    place = given.raw("sequence")
    since: Position | None = None if place == NEWEST else position_of_sequence("sequence", place)
    limit = min(given.whole("count", 1, 2**31 - 1), RESP_EVENTS)
    chosen: dict[str, Any] = {"LOG": None, "MATCH": None, "BLOCK": 0, "RESULT": False}
    given.options(
        {
            "LOG": lambda: chosen.update(LOG=given.text("LOG")),
            "MATCH": lambda: chosen.update(MATCH=given.raw("MATCH")),
            "BLOCK": lambda: chosen.update(BLOCK=given.whole("BLOCK", 0, 2**31 - 1)),
            "RESULT": lambda: chosen.update(RESULT=True),
        }
    )
    wanted = criteria_of_pattern(chosen["MATCH"])
    loop = asyncio.get_running_loop()
    until = port.until(client, chosen["BLOCK"])
    gap = False
    while True:
        # Repeated after each wait, because access may have been revoked.
        name, log, grant = await port.find(client, chosen["LOG"])
        view, criteria = narrow(grant, _VIEW, wanted)
        if place == NEWEST and since is None:
            since = log.head
        read = partial(_page, log, criteria, since, limit, view, port.page_bytes, client.version)
        try:
            page, events = await port.scan(client, read)
        except HistoryPruned as error:
            if not chosen["RESULT"]:
                raise
            gap, since = True, error.oldest
            continue
        since = page.next
        if page.changes or client.ended or loop.time() >= until:
            break
        async with woken(port, client, name, log, criteria, since) as event:
            await port.wait(client, event, until)
    return {"events": events, "next_seq": sequence_of(since), "gap": gap} if chosen["RESULT"] else events


def _page(
    log: "ChangeLog",
    criteria: Criteria,
    since: Position | None,
    limit: int,
    view: View,
    nbytes: int,
    version: int,
    turn: Turn[tuple[History, Encoded]],
) -> tuple[History, Encoded]:
    """Reads a page and encodes it, on a thread."""
    start = None if since is None or since.version == 0 else since
    page = log.history(criteria, start, limit, view=view, max_bytes=nbytes, check=turn.check)
    return page, Encoded(encode_reply([kora_event(one) for one in page.changes], version))


@contextlib.asynccontextmanager
async def woken(
    port: RespPort, client: RespClient, name: str, log: "ChangeLog", criteria: Criteria, since: Position
) -> AsyncIterator[asyncio.Event]:
    """Provides an event that is set once there is a change from a position on, or never will be.

    Raises:
        TooCostly: If the waiting commands weigh too much already.
    """
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(event.set)

    waker = _Waker(notify)
    port.weight.take(name, criteria, weigh(criteria))
    try:
        await port.scan(client, lambda _: log.changes(criteria, since=since).subscribe(waker))
        yield event
    finally:
        port.weight.give(name, criteria)
        waker.end()
