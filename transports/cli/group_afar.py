"""The groups of a server: reads them from its statistics, and sends requests for them."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from publishers.groups.state import GroupState
from publishers.store.log_entries import SYSTEM
from transports.cli.http import ask, token_of, trust_of
from transports.cli.remote import ask_remote
from transports.client.remote_groups import RemoteGroups
from transports.errors import LogNotFound

__all__ = ["ask_groups", "groups_of"]

_T = TypeVar("_T")


def groups_of(chosen: argparse.Namespace, url: str) -> tuple[list[dict[str, Any]], bool]:
    """Returns the groups that a server lists of a log, and whether these are all.

    Groups of the owner lack what only their journals hold; groups of a server that follows the log are as for a directory.

    Raises:
        ConnectionError: If the server does not answer with statistics, shows this client no groups, or cannot read the journals.
        LogNotFound: If it has no log of that name, or if it has several and no name is given.
    """
    statistics = ask(url, "/statistics", "statistics", token_of(chosen), trust_of(chosen, url))
    logs = None if statistics is None else statistics.get("logs")
    if not isinstance(logs, dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    known = [name for name in logs if name != SYSTEM]
    name = known[0] if chosen.log is None and len(known) == 1 else chosen.log
    if name not in logs:
        raise LogNotFound(name, known)
    try:
        return _groups_json(url, logs[name])
    except (LookupError, TypeError, AttributeError):
        raise ConnectionError(f"{url} answers with statistics of another version") from None


def ask_groups(chosen: argparse.Namespace, url: str, ask_for: Callable[[RemoteGroups], Awaitable[_T]]) -> _T:
    """Runs a request against the groups of a server, and returns the reply.

    Raises:
        RemoteError: If the server refuses it, for example because of the grant.
    """
    return ask_remote(
        chosen,
        url,
        lambda remote: ask_for(remote.groups if chosen.log is None else remote.groups.of(chosen.log)),
    )


def _groups_json(url: str, log: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    if (failure := log.get("storedGroupsFailure") or log.get("failure")) is not None:
        raise ConnectionError(f"{url} cannot read the groups of the log: {failure}")
    if "storedGroups" in log:  # the server follows the log
        return list(log["storedGroups"]), not log["storedGroupsMore"]
    if "consumerGroups" not in log:
        raise ConnectionError(
            f"{url} shows the groups of a log to principals that may operate it; ask with such a token"
        )
    groups = log["consumerGroups"]
    return [_group_json(name, one) for name, one in sorted(groups.items())], len(groups) == log[
        "consumerGroupCount"
    ]


def _group_json(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    forked = group["state"] == GroupState.FORKED.value  # its versions are those of another history
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
        "lag": {unit: None if forked else group["lag"][unit] for unit in ("versions", "seconds")},
    }
