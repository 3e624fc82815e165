"""``penstock policy check``: checks a policy file, or prints what it grants."""

import argparse
from collections.abc import Iterator
from typing import Any

from publishers.errors import InvalidOption
from publishers.views.view import View
from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.policy import Policy
from transports.access.principal import Principal
from transports.cli.arguments import ArgumentParser
from transports.cli.output import show

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Reads a policy file as a server would, and prints what it grants to a principal on a log."
    )
    parser.epilog = "Exit codes: 0 it is sound, 1 nothing is granted, 2 something in it is wrong."
    parser.add_argument("what", choices=["check"], help="what to do")
    parser.value("file", "FILE", "the policy")
    parser.value(
        "--as", "NAME", "whose grants: a principal of the file, or any name with --role", dest="name"
    )
    parser.each(
        "--role", "ROLE", "role of that name, in place of those in the file, as a token might tell it"
    )
    parser.each("--claim", "NAME=VALUE", "claim of the principal, by name")
    parser.log_name("server")
    parser.json("the grants as one JSON document")


def run(chosen: argparse.Namespace) -> int:
    """Checks the file; with a principal and a log, prints the grants."""
    policy = Policy(chosen.file)
    if chosen.name is None and chosen.log is None:
        unfilled = [each for one in policy.principals() for each in _unfilled(policy, one)]
        result = {"file": chosen.file, "principals": len(policy), "unfilled": unfilled}
        said = f"{chosen.file} is sound, and names {len(policy)} principals"
        show(chosen, result, [said, *map(_unfilled_line, unfilled)])
        return 0
    if chosen.name is None or chosen.log is None:
        raise InvalidOption("--log" if chosen.log is None else "--as", None, "given, as the other one is")
    principal = _principal(policy, chosen)
    access = Access(authorise=policy.authorise)
    grants = {action: access.allows(principal, chosen.log, action) for action in LogAction}
    document = {
        "principal": principal.name,
        "roles": sorted(principal.roles),
        "log": chosen.log,
        "grants": {action.name: _grant_json(grant) for action, grant in grants.items() if grant is not None},
        "unfilled": _unfilled(policy, principal),
    }
    show(chosen, document, _lines(document))
    return 0 if document["grants"] else 1


def _principal(policy: Policy, chosen: argparse.Namespace) -> Principal:
    known = policy.principal(chosen.name)
    if known is None and not chosen.role:
        raise InvalidOption(
            "--as", chosen.name, "a principal of the file, unless --role says what it is entitled to"
        )
    claims = {} if known is None else dict(known.claims)
    for each in chosen.claim:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidOption("--claim", each, "NAME=VALUE")
        claims[name] = value
    roles = chosen.role or (() if known is None else known.roles)
    return Principal(chosen.name, roles, claims)


def _grant_json(grant: Grant) -> dict[str, Any]:
    view = grant.view
    return {
        "view": None if view is None else _view(view),
        "criteria": None if grant.criteria is None else grant.criteria.to_json(),
        "slots": list(grant.slots),
        "groups": list(grant.groups),
    }


def _view(view: View) -> dict[str, Any]:
    view_json: dict[str, Any] = {"content": view.content.name, "images": view.images.name}
    for lens in view.lenses:
        view_json["fields"] = None if lens.fields is None else lens.fields.to_json()
        view_json["mask"] = None if lens.mask is None else sorted(path for path, _ in lens.mask.rules)
    return view_json


def _lines(document: dict[str, Any]) -> Iterator[str]:
    who, log = document["principal"], document["log"]
    yield f"{who} ({', '.join(document['roles']) or 'no roles'}) on {log}:"
    for action in LogAction:
        grant = document["grants"].get(action.name)
        if grant is None:
            yield f"  {action.name}: no"
            continue
        yield f"  {action.name}: yes"
        if grant["view"] is not None:
            yield "    sees " + ", ".join(f"{name} {value}" for name, value in grant["view"].items() if value)
        if grant["criteria"] is not None:
            yield f"    of the changes that fulfil any of {grant['criteria'] or 'all'}"
        if action is LogAction.CONSUME:
            for kind in ("slots", "groups"):
                yield f"    the {kind} {', '.join(grant[kind]) or 'of no name'}"
    yield from map(_unfilled_line, document["unfilled"])


def _unfilled(policy: Policy, principal: Principal) -> list[dict[str, Any]]:
    return [{"principal": principal.name, **one._asdict()} for one in policy.unfilled(principal)]


def _unfilled_line(one: dict[str, Any]) -> str:
    return f"[[grants]] {one['grant']} {one['key']} {one['pattern']} is nothing for {one['principal']}: {one['why']}"
