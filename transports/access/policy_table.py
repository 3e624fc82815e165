"""The tables of a policy file, whose errors name their location."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from publishers.errors import InvalidCriteria, InvalidOption
from publishers.model.errors import HIDDEN

__all__ = ["PolicyTable"]

_T = TypeVar("_T")


class PolicyTable:
    """One table of a policy file.

    Args:
        file: The file, for errors.
        name: The name of the table, such as ``[jwt]``; empty for the file itself.
        value: The content.
        keys: The allowed keys.

    Raises:
        InvalidOption: If the content is not a table or has an unknown key; suggests the closest allowed key.
    """

    def __init__(self, file: str, name: str, value: object, keys: Collection[str]) -> None:
        self._file = file
        self._name = name
        if not isinstance(value, Mapping):
            raise InvalidOption(self._place(""), type(value).__name__, f"a table with {', '.join(keys)}")
        self._values = value
        for key in value:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, 1, 0.5)
                hint = f"; {near[0]} is near" if near else ""
                raise InvalidOption(self._place("key"), key, f"one of {', '.join(keys)}{hint}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _place(self, key: str) -> str:
        return ": ".join(filter(None, (self._file, " ".join(filter(None, (self._name, key))))))

    def wrong(self, key: str, right: str, *, secret: bool = False) -> InvalidOption:
        """Returns the error for a wrong value of a key; ``secret`` hides the value."""
        return InvalidOption(self._place(key), HIDDEN if secret else self._values.get(key), right)

    def text(self, key: str, *, secret: bool = False) -> str:
        """Returns a required, non-empty text."""
        value = self._values.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text that is not empty", secret=secret)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts; empty if the key is absent."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.wrong(key, 'a list of texts, such as ["a", "b"]')
        return tuple(value)

    def table(self, key: str, keys: Collection[str]) -> "PolicyTable":
        """Returns a subtable."""
        name = f"[{self._name.strip('[]')}.{key}]" if self._name else f"[{key}]"
        return PolicyTable(self._file, name, self._values[key], keys)

    def names(self) -> list[str]:
        """Returns the keys."""
        return list(self._values)

    def each(self, key: str, keys: Collection[str]) -> "list[PolicyTable]":
        """Returns the tables of an array of tables."""
        listed = self._values.get(key, [])
        if not isinstance(listed, list):
            raise self.wrong(key, f"a list of tables: [[{key}]]")
        name = f"{self._name} {key}" if self._name else f"[[{key}]]"
        return [PolicyTable(self._file, f"{name} {n}", table, keys) for n, table in enumerate(listed, 1)]

    def made(self, key: str, make: Callable[[Any], _T], default: Any = None) -> _T:
        """Converts a value; errors name its location."""
        value = self._values.get(key, default)
        try:
            return make(value)
        except InvalidCriteria as error:
            raise InvalidOption(
                self._place(f"{key} {error.path}".strip()), error.value, error.right
            ) from None
        except InvalidOption as error:
            raise InvalidOption(self._place(f"{key}: {error.parameter}"), error.value, error.right) from None
        except TypeError:
            raise self.wrong(key, "of another kind") from None

    def plain(self) -> dict[str, Any]:
        """Returns the content as a dict."""
        return dict(self._values)
