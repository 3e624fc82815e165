"""A table of a file that declares sinks: keys that are known, and errors that tell the place and no value."""

from collections.abc import Callable, Mapping
from typing import Any

from publishers.errors import InvalidCriteria, InvalidOption

__all__ = ["ConfigTable"]


class ConfigTable:
    """One table of a file, whose keys are known.

    Args:
        place: Where it is, for what is wrong in it.
        told: What is there.
        keys: Those that it may have.

    Attributes:
        place: See above.
        told: See above.

    Raises:
        InvalidOption: If it is no table, or has another key.
    """

    def __init__(self, place: str, told: object, keys: tuple[str, ...]) -> None:
        self.place = place
        if not isinstance(told, Mapping):
            raise InvalidOption(place, type(told).__name__, f"a table with {', '.join(keys)}")
        for key in told:
            if key not in keys:
                raise InvalidOption(f"{place} key", key, f"one of {', '.join(keys)}")
        self.told: Mapping[str, Any] = told

    def wrong(self, key: str, right: str) -> InvalidOption:
        """The error of a value, which may be a secret and is not told."""
        return InvalidOption(f"{self.place} {key}", "what is there", right)

    def text(self, key: str) -> str:
        """A text that has to be there; raises ``InvalidOption``."""
        value = self.told.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text that is not empty")
        return value

    def picked(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """Those of some keys that are there."""
        return {key: self.told[key] for key in keys if key in self.told}

    def table(self, key: str, keys: tuple[str, ...]) -> dict[str, Any]:
        """A table in this one, nothing if it is not there; raises ``InvalidOption``."""
        return dict(ConfigTable(f"{self.place} {key}", self.told.get(key, {}), keys).told)

    def made(self, make: Callable[[], Any]) -> Any:
        """What is made of it; what is wrong is told with its place, and without values, which may be secrets."""
        try:
            return make()
        except InvalidCriteria as error:
            raise InvalidOption(f"{self.place} {error.path}", error.value, error.right) from None
        except InvalidOption as error:
            if error.parameter.startswith(self.place):
                raise
            right = str(error).partition(", but must be ")[2]
            raise self.wrong(error.parameter, right) from None
        except (TypeError, AttributeError, ValueError):
            raise InvalidOption(
                self.place, "what is there", "values of the kinds that its keys have"
            ) from None
