"""Errors of operations as GraphQL tells them: the words of the one table, in ``extensions``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError

from publishers.errors import PenstockError
from transports.codec.graphql_ws import graphql_error
from transports.errors import shortened
from transports.problems import Problem, describe

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["RequestRefused", "formatted", "problem_of", "told"]


class RequestRefused(Exception):
    """A request that is not executed: its document, its variables or its arguments are wrong.

    Attributes:
        errors: What is wrong, as it travels.
    """

    def __init__(self, errors: Iterable[GraphQLError]) -> None:
        self.errors = formatted(errors)
        super().__init__("; ".join(error["message"] for error in self.errors))


def problem_of(error: BaseException, log: "ChangeLog | None") -> Problem:
    """What a subscriber of a log is told of an error; positions in it become cursors."""
    return describe(error) if log is None else describe(error, lambda position: str(log.token(position)))


def told(error: PenstockError, log: "ChangeLog | None" = None) -> GraphQLError:
    """An error of the log or of the transport, as resolvers raise it."""
    return GraphQLError(**graphql_error(problem_of(error, log)))


def formatted(errors: Iterable[GraphQLError]) -> list[dict[str, Any]]:
    """Errors as they travel.

    An error that a resolver did not raise on purpose is logged with an id, and only the id is told. One that is
    graphql-core's own concerns the request.
    """
    found = []
    for error in errors:
        plain: dict[str, Any] = dict(error.formatted)
        plain["message"] = shortened(error.message)  # it may repeat what the client sent
        if not plain.get("extensions"):
            original = error.original_error
            if original is None or isinstance(original, GraphQLError):
                plain["extensions"] = {"code": "INVALID_REQUEST", "retryable": False}
            else:
                problem = describe(original)
                plain.update(graphql_error(problem))
        found.append(plain)
    return found
