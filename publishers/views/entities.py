"""Entities as objects of the application's own classes: dataclasses, msgspec Structs, pydantic models."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from publishers.errors import BodyMismatch, InvalidOption
from publishers.model.change import Area, Change

__all__ = ["M", "Model", "ModelChange", "Models", "plain"]

if TYPE_CHECKING:
    # A mapping of classes has no common class that mypy could infer; its objects are Any.
    from typing_extensions import TypeVar as _Defaulted

    M = _Defaulted("M", default=Any)
else:
    M = TypeVar("M")

Read = Callable[[bytes], Any]

_MODEL: Final = "a dataclass, a msgspec.Struct or a pydantic model"
# Types that `publishers.lossless` encodes by its own rules.
_WRITTEN: Final = (bytes, bytearray, date, datetime, time, timedelta, Decimal, UUID)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Dumped(Protocol):
    def model_dump(self, *, mode: str) -> Any: ...


Model = msgspec.Struct | _Dataclass | _Dumped
"""An object that knows its own fields."""


class ModelChange(Change, Generic[M], frozen=True, gc=True, eq=False):
    """A change whose images are objects of the class passed as ``as_``; equal to the change it is made from."""

    _body: M | None = None
    _before: M | None = None

    @property
    def body(self) -> M | None:
        """The entity after the change; None if there is none, for a change that is not of a whole entity, or without a class."""
        return self._body

    @property
    def before(self) -> M | None:
        """The entity before the change; None as for ``body``."""
        return self._before


def plain(value: object) -> object:
    """Turns a model into values that JSON can represent; returns anything else unchanged.

    Raises:
        TypeError, ValueError: If the model contains a value that cannot be represented.
    """
    if isinstance(value, type):
        return value
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return msgspec.to_builtins(value, builtin_types=_WRITTEN)
    return value


class Models:
    """Turns the images of changes into objects.

    Args:
        as_: The class of all entities, or a mapping from entity types to classes.
        kind: Makes the resulting change; its last two arguments are the objects.

    Raises:
        InvalidOption: If ``as_`` is invalid.
    """

    __slots__ = ("_all", "_kind", "_types")

    def __init__(self, as_: object, kind: Callable[..., Any]) -> None:
        named = as_ if isinstance(as_, Mapping) else {}
        self._types = {entity_type: _reader(model) for entity_type, model in named.items()}
        self._all = None if named else _reader(as_)
        self._kind = kind

    def change(self, change: Change) -> Any:
        """Returns the change with objects as images.

        Raises:
            BodyMismatch: If an image does not fit its class.
        """
        body = before = None
        if change.area is Area.DATA and change.field is None and change.entity_type is not None:
            found = self._types.get(change.entity_type, self._all)
            if found is not None:
                body = _made(change, "body", change.body_bytes, *found)
                before = _made(change, "before", change.before_bytes, *found)
        return self._kind(*msgspec.structs.astuple(change), body, before)


def _made(change: Change, image: str, data: bytes | None, name: str, read: Read) -> Any:
    if data is None:
        return None
    try:
        return read(data)
    except Exception as error:  # a model's own checks may raise any error
        raise BodyMismatch(
            image, change.entity_type, change.key, change.position, change.after, name, _flaw(error)
        ) from error


def _flaw(error: Exception) -> str:
    """Returns the reason of a mismatch in one line."""
    found = getattr(error, "errors", None)  # of pydantic, whose text has several lines
    if callable(found):
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found())
    return " ".join(str(error).split()) or type(error).__name__


def _reader(model: object) -> tuple[str, Read]:
    if isinstance(model, type):
        if callable(validate := getattr(model, "model_validate_json", None)):
            return model.__name__, validate
        if issubclass(model, msgspec.Struct) or dataclasses.is_dataclass(model):
            return model.__name__, msgspec.json.Decoder(model).decode
    raise InvalidOption("as_", model, f"{_MODEL}, or of each entity type such a class")
