"""A table of a file that declares sinks: checks its keys; errors name the place and no value."""

from collections.abc import Callable, Mapping
from typing import Any

from publishers.errors import InvalidCriteria, InvalidOption
from publishers.model.errors import HIDDEN

__all__ = ["ConfigTable"]


class ConfigTable:
    """One table of a file, with a fixed set of keys.

    Args:
        place: The place of the table in the file, for errors.
        value: The table.
        keys: The keys that it may have.

    Attributes:
        place: The place of the table.
        values: The table.

    Raises:
        InvalidOption: If it is not a table, or has another key.
    """

    def __init__(self, place: str, value: object, keys: tuple[str, ...]) -> None:
        self.place = place
        if not isinstance(value, Mapping):
            raise InvalidOption(place, type(value).__name__, f"a table with {', '.join(keys)}")
        for key in value:
            if key not in keys:
                raise InvalidOption(f"{place} key", key, f"one of {', '.join(keys)}")
        self.values: Mapping[str, Any] = value

    def wrong(self, key: str, right: str) -> InvalidOption:
        """Returns the error of a value, which it omits because it may be a secret."""
        return InvalidOption(f"{self.place} {key}", HIDDEN, right)

    def text(self, key: str) -> str:
        """Returns a text that must be present; raises ``InvalidOption``."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text that is not empty")
        return value

    def picked(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """Returns the values of the keys that are present."""
        return {key: self.values[key] for key in keys if key in self.values}

    def table(self, key: str, keys: tuple[str, ...]) -> dict[str, Any]:
        """Returns a table within this one, empty if it is missing; raises ``InvalidOption``."""
        return dict(ConfigTable(f"{self.place} {key}", self.values.get(key, {}), keys).values)

    def made(self, make: Callable[[], Any]) -> Any:
        """Calls ``make``; its errors name the place in the file, and no values, which may be secrets."""
        try:
            return make()
        except InvalidCriteria as error:
            raise InvalidOption(f"{self.place} {error.path}", error.value, error.right) from None
        except InvalidOption as error:
            if error.parameter.startswith(self.place):
                raise
            raise self.wrong(error.parameter, error.right) from None
        except (TypeError, AttributeError, ValueError):
            raise InvalidOption(self.place, HIDDEN, "values of the kinds that its keys have") from None
