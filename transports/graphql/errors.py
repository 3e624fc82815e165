"""Errors of operations as GraphQL errors, with the codes of the wire in ``extensions``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError

from publishers.errors import PenstockError
from transports.codec.graphql_ws import graphql_error
from transports.errors import shortened
from transports.problems import Problem, describe

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["RequestRefused", "formatted", "not_persisted", "problem_of", "resolver_error"]


class RequestRefused(Exception):
    """A request that is not executed: its document, variables or arguments are invalid.

    Attributes:
        errors: The errors, in the format of the wire.
    """

    def __init__(self, errors: Iterable[GraphQLError]) -> None:
        self.errors: list[dict[str, Any]] = formatted(errors)
        super().__init__("; ".join(error["message"] for error in self.errors))


def not_persisted() -> RequestRefused:
    """Returns the refusal of a hash in place of a query, in the words of Apollo's protocol: the client sends queries from now on."""
    extensions = {"code": "PERSISTED_QUERY_NOT_SUPPORTED", "retryable": False}
    return RequestRefused([GraphQLError("PersistedQueryNotSupported", extensions=extensions)])


def problem_of(error: BaseException, log: "ChangeLog | None") -> Problem:
    """Returns the problem of an error for a client of a log; positions become cursors."""
    return describe(error) if log is None else describe(error, lambda position: str(log.token(position)))


def resolver_error(error: PenstockError, log: "ChangeLog | None" = None) -> GraphQLError:
    """Returns an error of the log or of the transport in the form that resolvers raise."""
    return GraphQLError(**graphql_error(problem_of(error, log)))


def formatted(errors: Iterable[GraphQLError]) -> list[dict[str, Any]]:
    """Returns errors in the format of the wire.

    An unexpected error of a resolver is logged with an id, and the client gets only the id. An error of graphql-core itself
    concerns the request.
    """
    found = []
    for error in errors:
        plain: dict[str, Any] = dict(error.formatted)
        plain["message"] = shortened(error.message)  # it may repeat the client's input
        if not plain.get("extensions"):
            original = error.original_error
            if original is None or isinstance(original, GraphQLError):
                plain["extensions"] = {"code": "INVALID_REQUEST", "retryable": False}
            else:
                problem = describe(original)
                plain.update(graphql_error(problem))
        found.append(plain)
    return found
