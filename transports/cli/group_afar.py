"""What a server tells of the groups of its logs, from its statistics."""

import argparse
from collections.abc import Mapping
from typing import Any

from publishers.store.log_entries import SYSTEM
from transports.cli.http import ask, token_of, trust_of
from transports.errors import LogNotFound

__all__ = ["groups_of"]


def groups_of(chosen: argparse.Namespace, url: str) -> list[dict[str, Any]]:
    """The groups of a log of a server, as those of a directory are told, without what only their journals hold.

    Raises:
        ConnectionError: If it does not answer with statistics.
        LogNotFound: If it has no log of the name, or several and there is no name.
    """
    told = ask(url, "/statistics", "statistics", token_of(chosen), trust_of(chosen, url))
    logs = None if told is None else told.get("logs")
    if not isinstance(logs, dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    known = [name for name in logs if name != SYSTEM]
    name = known[0] if chosen.log is None and len(known) == 1 else chosen.log
    if name not in logs:
        raise LogNotFound(name, known)
    try:
        return [_told(name, one) for name, one in sorted(logs[name].get("consumerGroups", {}).items())]
    except (LookupError, TypeError, AttributeError):
        raise ConnectionError(f"{url} answers with statistics of another version") from None


def _told(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    waiting = {what: group[what] for what in ("pending", "due", "parked", "dying")}
    return {
        "name": name,
        **{end: f"{group[end]['version']}:{group[end]['index']}" for end in ("floor", "head")},
        "generation": group["generation"],
        "state": group["state"],
        "notDone": sum(waiting.values()),
        "delivered": group["pending"] + group["due"],
        "dead": group["dead"],
        "lost": group["lost"],
        **waiting,
        "acked": group["acked"],
        "redelivered": group["redelivered"],
        "consumers": group["consumerNames"],
        "lastError": group["lastError"],
        "nextSeconds": group["nextSeconds"],
        "cursor": group["head"]["cursor"],
        "lag": {"versions": group["lag"]["versions"], "seconds": group["lag"]["seconds"]},
    }
