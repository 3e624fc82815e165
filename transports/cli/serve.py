"""``penstock serve``: a log, or all logs of a store, on a port until it is interrupted."""

import argparse
import signal
import threading
from types import FrameType

from publishers.changelog import ChangeLog
from publishers.errors import InvalidOption
from publishers.store.store import ChangeStore
from transports.cli.places import check_directory, is_store
from transports.cli.viewing import view_of
from transports.cli.waiting import wait_for
from transports.followed import FollowedName
from transports.origins import checked_origins
from transports.server import serve as start

__all__ = ["serve"]


def serve(chosen: argparse.Namespace) -> int:
    """Serves until SIGINT (then 130) or SIGTERM (then 0); clients are told, and the log is closed."""
    finished = threading.Event()
    view = view_of(chosen)
    checked_origins(chosen.origin)  # before anything is opened

    def finish(_signal: int, _frame: FrameType | None) -> None:
        finished.set()

    with (
        _opened(chosen) as served,
        start(
            served,
            chosen.host,
            chosen.port,
            origins=chosen.origin,
            hosts=chosen.allow_host,
            view=view if view.lenses else None,
        ) as server,
    ):
        before = signal.signal(signal.SIGTERM, finish)
        try:
            how = "as its owner" if chosen.own else "read-only"
            print(
                f"serving {_named(served)} {how} at {server.url}, health at {server.health_url}", flush=True
            )
            wait_for(finished)
        finally:
            signal.signal(signal.SIGTERM, before)
    return 0


def _opened(chosen: argparse.Namespace) -> ChangeLog | ChangeStore | FollowedName:
    check_directory(chosen.directory)
    if chosen.follow_name:
        if chosen.own:
            raise InvalidOption("--follow-name", True, "left out with --own: an owner keeps what it has open")
        return FollowedName(chosen.directory)
    if is_store(chosen.directory):
        return ChangeStore.open(chosen.directory, read_only=not chosen.own)
    return ChangeLog.open(chosen.directory, read_only=not chosen.own)


def _named(served: ChangeLog | ChangeStore | FollowedName) -> str:
    """What is served, in words."""
    if isinstance(served, ChangeLog | FollowedName):
        return served.name
    logs = ", ".join(served) or "no logs yet"
    return f"the store {served.path.resolve().name} ({logs})"
