"""Which errors of a database are about the values of a statement, and not about the database."""

import re
from typing import Final

import sqlalchemy as sa

__all__ = ["refuses_values", "said_of"]

# Classes of SQLSTATE: triggered actions, data, integrity, external routines, WITH CHECK OPTION, limits, PL/pgSQL's RAISE, and
# those that are left to users, who may raise them in triggers.
_OF_VALUES: Final = re.compile(r"09|2[237]|3[89]|44|54|P0|[6-9I-OQ-WYZ]")


def refuses_values(error: Exception) -> bool:
    """Whether a statement with other values may succeed: a value does not fit, a constraint is violated, or a trigger raises."""
    if not isinstance(error, sa.exc.StatementError):
        return isinstance(error, ValueError | ArithmeticError)  # of a driver that cannot pass the value on
    if not isinstance(error, sa.exc.DBAPIError):
        return True  # of SQLAlchemy, which cannot convert the value
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return not error.connection_invalidated and _OF_VALUES.match(state) is not None
    return "binding parameter" in str(error.orig)


def said_of(error: Exception) -> str:
    """Returns the message of the database, without the statement and its values."""
    origin = getattr(error, "orig", None)
    return " ".join(str(error if origin is None else origin).split())
