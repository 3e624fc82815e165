"""The processes of a history: who writes, who tails and serves, and clients that are attached over WebSockets.

Each obeys lines on standard input, and says on standard output what the parent waits for.
"""

import faulthandler
import logging
import threading
from pathlib import Path
from typing import Any

from publishers import ChangeLog, Criterion
from publishers.errors import NotALog
from tests.history.clients import attend
from tests.history.outsiders import attend as append
from tests.history.record import Recorder
from tests.history.reopening import reopen
from tests.history.subscribers import Company, last_places
from tests.history.words import orders, say
from tests.history.writers import Writers


def write(
    path: str,
    history: str,
    life: int,
    seed: int,
    options: dict[str, Any],
    writers: dict[str, int],
    pace: float,
    witnesses: int,
    consumers: bool,
    ports: list[int],
    last: str | None,
) -> None:
    """Owns the log: threads that commit, subscribers, and where ``ports`` says so what serves those outside."""
    record = Recorder(Path(history))
    log = ChangeLog.open(path, **options)
    record("open", visible=log.visible)
    company = Company(log, record, f"w{life}", seed) if witnesses else None
    if company is not None:
        company.fill(witnesses, {})
        if consumers:
            company.open_slot("archive", last_places(Path(last)) if last else {})
    servers = served(log, ports)
    writing = Writers(log, record, life, seed, pace)
    writing.start(writers)
    say("open")
    orders()
    writing.stop()
    writing.expose()
    # Under every policy this one is synced, and with it all that lies before it is visible.
    say("stopped", writing.commit(f"h{life}/1000003", durable=True))
    visible = int(orders())
    if company is not None:
        company.rest(visible, 30)
    if log.options.state:
        record_state(log, record, visible)
    say("rested")
    orders()
    for server in servers:
        server.stop()
    log.close()
    if company is not None:
        company.close()
    say("closed")


def served(log: ChangeLog, ports: list[int]) -> list[Any]:
    """Serves the log to those who write and consume from outside."""
    if not ports:
        return []
    from tests.history.outsiders import GROUP, GROUP_TYPES
    from transports import Grant, LogAction, serve, serve_resp

    if GROUP not in log.groups:
        log.groups.create(GROUP, Criterion(entity_types=GROUP_TYPES), since="earliest")
    everything = Grant(set(LogAction), groups={"*"})
    port, resp = ports
    return [serve(log, port=port, authorise=everything), serve_resp(log, port=resp, authorise=everything)]


def record_state(log: ChangeLog, record: Recorder, visible: int) -> None:
    """Writes down the keys of all entities that the compacted state has."""
    log.state.wait(visible)
    after = None
    while True:
        page = log.state.page(after=after)
        record("entities", keys=[row.key for row in page.rows])
        if not page.more:
            return
        after = page.rows[-1]


def follow(
    path: str,
    history: str,
    life: str,
    seed: int,
    witnesses: int,
    port: int | None,
    options: dict[str, Any],
    last: str | None,
) -> None:
    """Tails the log for subscribers of its own, and serves it if there is a port."""
    record = Recorder(Path(history))
    log = opened(path, options)
    company = Company(log, record, life, seed) if witnesses else None
    if company is not None:
        company.fill(witnesses, last_places(Path(last)) if last else {})
    server = None
    if port is not None:
        from transports import serve

        server = serve(log, port=port)
    say("open")
    visible = int(orders())
    if company is not None:
        company.rest(visible, 30)
    say("rested")
    orders()
    if server is not None:
        server.stop()
    log.close()
    if company is not None:
        company.close()  # whose executors the last signals need
    say("closed")


def opened(path: str, options: dict[str, Any]) -> ChangeLog:
    """Opens the log to follow it, as soon as there is one."""
    pause = threading.Event()
    for _ in range(200):
        try:
            return ChangeLog.open(path, read_only=True, **options)
        except NotALog as error:
            last = error
            pause.wait(0.05)
    raise last


def begin(what: str, arguments: dict[str, Any]) -> None:
    """Lives as one of them, in a process of its own."""
    faulthandler.enable()
    logging.getLogger("penstock.losses").setLevel(logging.ERROR)  # what retention takes is in the histories
    {"attend": attend, "outsiders": append, "write": write, "reopen": reopen, "follow": follow}[what](
        **arguments
    )
