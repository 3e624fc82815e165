"""``penstock tail``: prints changes as JSON lines, from a server or from the directory of a log."""

import argparse
import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict
from uuid import UUID

from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidOption
from publishers.fanout.batch import Batch
from publishers.log.start import Since
from publishers.model.change import Change
from publishers.slots.slots import check_slot_name
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, Integers
from transports.cli.arguments import ArgumentParser, number
from transports.cli.criteria import add_criteria, criteria_of
from transports.cli.http import add_token
from transports.cli.interrupts import wait_for
from transports.cli.remote import remote_of
from transports.cli.source import followed, url_of
from transports.cli.view import add_view, mask_of, view_of
from transports.client.backoff import Backoff
from transports.client.remote_feed import RemoteSubscription
from transports.client.remote_slots import RemoteSlot
from transports.codec.events import EventEncoder, encode_change
from transports.codec.replies import RemoteChange
from transports.codec.snapshot_places import token_in
from transports.codec.starts import asks_for_state, start_of_text
from transports.errors import ConnectionLost, RemoteError

if TYPE_CHECKING:
    from flow.contracts import Subscription

__all__ = ["add_arguments", "run"]

_WINDOW: Final = 256


class _Shown(TypedDict):
    """The view of the changes."""

    content: Content
    images: Images
    fields: list[str] | None
    mask: dict[str, Rule] | None
    integers: Integers


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Prints changes as JSON lines. A server that is lost is waited for, while standard error says why and where it will go on; "
        "nothing is left out and nothing comes twice."
    )
    parser.epilog = (
        "Exit codes: 0 the limit, the last version or the end of the log was reached; 1 refused, or the server is lost for good; "
        "2 wrong arguments; 130 interrupted; 141 broken pipe."
    )
    parser.value("source", "URL|DIR", "ws://host:port/ws, or the directory of a log or store")
    add_criteria(parser)
    parser.add_argument(
        "--since",
        metavar="WHERE",
        help="latest, earliest, a version, a time such as 2026-03-01T12:00:00Z, the id of a transaction, the cursor of "
        "an event, or state, of a server that keeps it: first the entities that there are, then every change (default: latest)",
    )
    parser.value(
        "--slot",
        "NAME",
        "of a server: from the place of this slot on, which is acknowledged as far as changes were printed",
    )
    parser.value("--until", "VERSION", "end after this version", type=number(1, 2**53 - 1))
    parser.value("--limit", "N", "end after so many changes", type=number(1, 2**53 - 1))
    add_view(parser)
    parser.log_name()
    parser.value(
        "--retry",
        "N",
        "attempts in a row to reach a server again that is lost, 0 for none (default: without end)",
        type=number(0, 2**31 - 1),
    )
    add_token(parser)


def run(chosen: argparse.Namespace) -> int:
    """Prints changes until the limit, the last version, the end of the log, or an interrupt."""
    url = url_of(chosen.source)
    if chosen.slot is not None:
        _check_slot(chosen, url)
    if url is not None:
        asyncio.run(_remote(chosen, url))
    else:
        _local(chosen)
    return 0


def _check_slot(chosen: argparse.Namespace, url: str | None) -> None:
    """Checks the options of a slot, which determines the criteria and the start.

    Raises:
        InvalidOption: If another option would determine them.
    """
    check_slot_name(chosen.slot)
    if url is None:
        raise InvalidOption("--slot", chosen.slot, "given with the URL of a server, which keeps its place")
    if chosen.since is not None or chosen.until is not None:
        name = "--since" if chosen.since is not None else "--until"
        raise InvalidOption(name, getattr(chosen, name[2:]), "left out with --slot")
    if criteria_of(chosen) != Criteria.of():
        raise InvalidOption("--slot", chosen.slot, "given without criteria, as the slot has its own")


class _Printer:
    """Prints one line per change, and requests more when half of its window is used."""

    def __init__(
        self,
        limit: int | None,
        finished: Callable[[], object],
        encode: Callable[[Sequence[Change]], list[bytes]],
        printed: Callable[[Change], object] = lambda _change: None,
    ) -> None:
        self.error: BaseException | None = None
        self.subscription: Subscription | None = None
        self._left = limit
        self._finished = finished
        self._encode = encode
        self._printed = printed
        self._asked = 0

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        self.subscription = subscription
        self._ask(subscription)

    def on_next(self, change: Change, /) -> None:
        self.on_next_batch((change,))

    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        try:
            lines = [line.replace(b"\n", b" ").replace(b"\r", b" ") for line in self._encode(changes)]
            sys.stdout.buffer.write(b"\n".join(lines) + b"\n")
            sys.stdout.buffer.flush()
            self._printed(changes[-1])
        except Exception as error:  # noqa: BLE001 - the main thread waits, and raises the error
            # Most likely the reader of the output has closed it.
            self.give_up(error)
            return
        self._asked -= len(changes)
        if self._left is not None:
            self._left -= len(changes)
        if self.subscription is not None:
            self._ask(self.subscription)

    def on_error(self, error: Exception, /) -> None:
        self._end(error)

    def give_up(self, error: Exception) -> None:
        """Ends with an error that did not come from the subscription."""
        if self.subscription is not None:
            self.subscription.cancel()
        self._end(error)

    def on_complete(self) -> None:
        self._end(None)

    def _ask(self, subscription: "Subscription") -> None:
        want = _WINDOW if self._left is None else min(self._left, _WINDOW)
        if want == 0:
            subscription.cancel()
            self._end(None)
        elif self._asked * 2 <= want:
            more, self._asked = want - self._asked, want
            subscription.request(more)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self._finished()


def _since(chosen: argparse.Namespace) -> Since:
    text: str = chosen.since or "latest"
    return text if asks_for_state(text) else start_of_text("--since", text)


def _local(chosen: argparse.Namespace) -> None:
    criteria, view = criteria_of(chosen), view_of(chosen)
    since = _since(chosen)
    with followed(chosen.source, chosen.log) as log:
        encoder = EventEncoder(log.token)
        finished = threading.Event()

        def encode(changes: Sequence[Change]) -> list[bytes]:
            if isinstance(changes, Batch):
                return encoder.events(changes.slices, changes.view)
            return [encode_change(change, encoder.cursor(change.after)) for change in changes]

        printer = _Printer(chosen.limit, finished.set, encode)
        try:
            feed = log.changes(criteria, since=since, until=chosen.until, view=view)
        except InvalidOption:
            if not isinstance(since, UUID):
                raise
            raise InvalidOption("--since", chosen.since, "the id of a transaction that is kept") from None
        feed.subscribe(printer)
        wait_for(finished)
        if printer.error is not None:
            raise printer.error


async def _remote(chosen: argparse.Namespace, url: str) -> None:
    finished = asyncio.Event()
    slot: RemoteSlot | None = None

    def encode(changes: Sequence[Change]) -> list[bytes]:
        return [
            encode_change(change, change.cursor, Integers(chosen.integers))
            for change in changes
            if isinstance(change, RemoteChange)
        ]

    def printed(change: Change) -> None:
        if slot is not None and isinstance(change, RemoteChange):
            slot.ack(change)

    printer = _Printer(chosen.limit, finished.set, encode, printed)

    reconnect = chosen.retry != 0 and Backoff(attempts=chosen.retry)
    async with remote_of(chosen, url, reconnect=reconnect, on_wait=partial(_wait, url, printer)) as log:
        shown = _Shown(
            content=Content(chosen.content),
            images=Images(chosen.images),
            fields=chosen.field or None,
            mask=mask_of(chosen.mask),
            integers=Integers(chosen.integers),
        )
        if chosen.slot is None:
            feed = log.changes(
                criteria_of(chosen), since=_since(chosen), until=chosen.until, log=chosen.log, **shown
            )
        else:
            slot = log.slot(chosen.slot, log=chosen.log)
            feed = slot.changes(**shown)
        feed.subscribe(printer)
        await finished.wait()
    if printer.error is not None:
        raise printer.error


def _wait(url: str, printer: _Printer, lost: ConnectionLost | RemoteError, delay: float) -> None:
    """Prints the reason of the wait and the position to resume at; gives up if the first attempt was refused."""
    subscription = printer.subscription
    place = ""
    if isinstance(subscription, RemoteSubscription):
        if isinstance(lost, RemoteError) and subscription.head is None:
            printer.give_up(lost)
            return
        if subscription.cursor is not None:
            place = f", from {token_in(subscription.cursor).position}"
    why = " ".join((lost.why if isinstance(lost, ConnectionLost) else str(lost)).split())
    print(
        f"penstock: waiting for {url}: {why}; trying again in {delay:.1f} s{place}",
        file=sys.stderr,
        flush=True,
    )
