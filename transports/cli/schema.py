"""``penstock schema``: prints the schemas of a log, from a directory or a server."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from publishers.errors import InvalidOption
from transports.cli.arguments import ArgumentParser
from transports.cli.http import add_token, ask, token_of, trust_of
from transports.cli.output import print_json
from transports.cli.source import followed, url_of
from transports.codec.fields import convert
from transports.errors import InvalidRequest
from transports.operations.operation import EVERYTHING, Target
from transports.operations.schemas import SchemaLookup

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = "Prints a schema as one JSON document, or, without TYPE, the entity types that have one and its versions."
    parser.value("source", "URL|DIR", "http://host:port/ of a server, or the directory of a log or store")
    parser.value("entity_type", "TYPE", "entity type", nargs="?")
    parser.value("--version", "N", "the schema_version of a change; the newest if left out", type=int)
    parser.log_name()
    add_token(parser)


def run(chosen: argparse.Namespace) -> int:
    """Prints a schema, or the list of schemas."""
    if chosen.entity_type is None and chosen.version is not None:
        raise InvalidOption("--version", chosen.version, "left out without TYPE")
    url = url_of(chosen.source)
    if chosen.entity_type is None:
        listed = _listed(url, chosen)
        for name, versions in listed.items():
            print(name, *versions)
        if not listed:
            print("no schemas yet", file=sys.stderr)
        return 0
    found = _found(url, chosen)
    if found is None:
        which = "" if chosen.version is None else f" of version {chosen.version}"
        print(f"penstock: no schema{which} of {chosen.entity_type!r} is registered", file=sys.stderr)
        return 1
    print_json(found)
    return 0


def _listed(url: str | None, chosen: argparse.Namespace) -> Mapping[str, Any]:
    if url is not None:
        schemas = ask(url, "/schemas", "schemas", token_of(chosen), trust_of(chosen, url), log=chosen.log)
        return schemas["schemas"] if schemas is not None else {}
    with followed(chosen.source, chosen.log) as log:
        return log.schemas()


def _found(url: str | None, chosen: argparse.Namespace) -> Any:
    try:
        asked = convert(
            SchemaLookup, {"log": chosen.log, "entity_type": chosen.entity_type, "version": chosen.version}
        )
    except InvalidRequest as error:
        raise _misused(error, chosen) from None
    if url is not None:
        return ask(
            url,
            "/schemas",
            "schemas",
            token_of(chosen),
            trust_of(chosen, url),
            log=asked.log,
            entity_type=asked.entity_type,
            version=asked.version,
        )
    with followed(chosen.source, chosen.log) as log:
        return asked.run(Target(log.name, log, EVERYTHING))


def _misused(error: InvalidRequest, chosen: argparse.Namespace) -> InvalidOption:
    value = chosen.version if error.path == "version" else chosen.entity_type
    name = "--version" if error.path == "version" else "TYPE"
    return InvalidOption(name, value, str(error).partition(" must be ")[2])
