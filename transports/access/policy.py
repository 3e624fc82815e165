"""What remote clients may see, whatever they ask for.

A policy is the widest view that a client may have: one for everybody, or one for each caller. What a client asks for is
narrowed to it, so a client can leave out more and mask more, but never less. A client that could ask in which changes a
field that it may not see has some value would learn the value bit by bit; so conditions on such fields are refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from publishers.criteria.criteria import Criteria
from publishers.views.paths import Path, parse_path
from publishers.views.view import Content, Images, View
from transports.errors import Forbidden, LogNotFound

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["Caller", "Policy", "check_schemas", "find_log", "narrow", "welcomes"]

_WHOLE_AFTER: Final = frozenset({Images.WRITTEN, Images.ALL, Images.AFTER})
_WHOLE_BEFORE: Final = frozenset({Images.WRITTEN, Images.ALL})
_READABLE: Final = "about fields that may be seen here"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and for what.

    Attributes:
        log: Name of the log.
        token: What the client gave as its token, judged by the server's authenticator; None if the server has none, whatever
            the client claims.
    """

    log: str
    token: str | None = field(default=None, repr=False)


Policy = View | Callable[[Caller], View]
"""The widest view of everybody, or a function that tells that of a caller; it may raise ``Forbidden``."""


def find_log(
    logs: "Mapping[str, ChangeLog]", name: str | None, policy: Policy | None, token: str | None
) -> "tuple[str, ChangeLog]":
    """The log that a caller means, with its name: who names none means the only one.

    Raises:
        LogNotFound: If there is none of that name, or several and no name; with the names of those that the caller may know.
    """
    if name is None and len(logs) == 1:
        return next(iter(logs.items()))
    log = None if name is None else logs.get(name)
    if name is None or log is None:
        raise LogNotFound(name, [known for known in logs if welcomes(policy, Caller(known, token))])
    return name, log


def narrow(policy: Policy | None, caller: Caller, wanted: View, criteria: Criteria) -> View:
    """What a caller is shown that asks for a view of the changes that fulfil some criteria.

    Raises:
        Forbidden: If the criteria ask about what the caller may not see, or the policy refuses the caller.
    """
    if policy is None:
        return wanted
    widest = _widest(policy, caller)
    for criterion in criteria.criterions:
        _check(criterion, widest)
    return wanted.within(widest)


def welcomes(policy: Policy | None, caller: Caller) -> bool:
    """Whether a caller may know of a log at all: whether the policy does not refuse him."""
    if policy is None:
        return True
    try:
        _widest(policy, caller)
    except Forbidden:
        return False
    return True


def check_schemas(policy: Policy | None, caller: Caller) -> None:
    """Checks whether a caller may look schemas up: who may not see their changes may not.

    Raises:
        Forbidden: If he may not, or the policy refuses the caller.
    """
    if policy is None:
        return
    widest = _widest(policy, caller)
    if widest.content is not Content.BODY or widest.images not in _WHOLE_AFTER:
        raise Forbidden("entity_type", "left alone, because schemas may not be seen here")


def _widest(policy: Policy, caller: Caller) -> View:
    widest = policy if isinstance(policy, View) else policy(caller)
    if not isinstance(widest, View):
        raise TypeError(f"a policy answers with a View, not with {type(widest).__name__}")
    return widest


def _check(criterion: Any, widest: View) -> None:
    # Attributes that a criterion does not have are wishes that nobody can have.
    def given(*names: str) -> str | None:
        return next((name for name in names if getattr(criterion, name, ())), None)

    asked = given("keys", "key_globs", "key_patterns")
    if asked and any(lens.mask is not None and lens.mask.touches((), "$key") for lens in widest.lenses):
        raise Forbidden(asked, "left out, because keys may not be seen here")
    changed = getattr(criterion, "changed", ())
    if changed and widest.images is Images.KEYS_ONLY:
        raise Forbidden("changed", _READABLE)
    for name in changed:
        if not all(_visible(path, widest) for path in _readings(name)):
            raise Forbidden("changed", _READABLE)
    conditions = getattr(criterion, "where", ())
    both = bool(getattr(criterion, "transitions", ()))
    for condition in conditions:
        before = both or condition.image.name == "BEFORE"
        after = both or condition.image.name == "AFTER"
        seen = widest.content is Content.BODY
        seen = seen and (not before or widest.images in _WHOLE_BEFORE)
        seen = seen and (not after or widest.images in _WHOLE_AFTER)
        if not seen or not all(_visible(path, widest) for path in _through_lists(condition.path)):
            raise Forbidden("where", _READABLE)


def _visible(path: Path, view: View) -> bool:
    """Whether what lies at a path is shown wholly, and as it is."""
    return all(
        (lens.fields is None or lens.fields.shows(path, wholly=True))
        and (lens.mask is None or not lens.mask.touches(path))
        for lens in view.lenses
    )


def _readings(name: str) -> Iterator[Path]:
    """What the name of a changed field may stand for: a field of that name, and a path."""
    yield (name,)
    try:
        root, path = parse_path("changed", name)
    except ValueError:
        return
    if not root:
        yield path


def _through_lists(path: Iterable[str]) -> Iterator[Path]:
    """What the path of a condition may stand for: a name of digits is a field, or a place in a list."""
    names = tuple(path)
    yield names
    yield tuple(name for name in names if not name.isdigit())
