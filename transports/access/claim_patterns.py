"""The claims in the patterns of a policy file, such as ``{tenant}-*``, and the values that may stand for them."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from transports.access.principal import Principal

__all__ = ["ClaimPatterns", "wrong_with"]

_CLAIM: Final = re.compile(r"\{([^{}]*)\}")
_PLAIN: Final = re.compile(r"[\w.:@-]{1,255}", re.ASCII)
_BLURRED: Final = re.compile(r"\}[{*?\[]|[*?\[].*\{", re.DOTALL)
_BRACES: Final = "texts in which braces hold the name of a claim, such as {tenant}-*"
_BESIDE: Final = (
    "texts in which wildcards stand behind the claims, with another character between, such as {tenant}-*"
)


def wrong_with(text: str) -> str | None:
    """Returns what a pattern must be, if its braces are wrong, or a claim in it has no end; None if it is sound."""
    rest = _CLAIM.sub("", text)
    if "{" in rest or "}" in rest or any(not name for name in _CLAIM.findall(text)):
        return _BRACES
    return _BESIDE if _BLURRED.search(text) else None


class ClaimPatterns:
    """Fills the claims of principals into patterns, such that two values of a claim never give the same name to two principals.

    With ``{tenant}-*`` the tenant ``a`` gets what begins with ``a-``, and so all of a tenant ``a-b``, whose own pattern may
    be another one. So these values are not filled in, for names of one kind:

    * those that hold a character that follows the claim in any pattern;
    * if some patterns begin a claim behind more text than others, those that hold the last character of that text, or are
      its first word: with ``{tenant}-*`` and ``all-{tenant}`` a tenant ``all``.

    Args:
        patterns: All patterns of the file, each with the kind of names for which it is, such as ``slots``.
    """

    def __init__(self, patterns: Iterable[tuple[str, str]]) -> None:
        ends: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        heads: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for kind, text in patterns:
            for found in _CLAIM.finditer(text):
                heads[kind, found[1]].add(text[: found.start()])
                ends[kind, found[1]].update(text[found.end() : found.end() + 1])
        self._ends, self._words = ends, defaultdict[tuple[str, str], set[str]](set)
        for place, texts in heads.items():
            more = [
                one.removeprefix(other)
                for one in texts
                for other in texts
                if one != other and one.startswith(other)
            ]
            ends[place].update(one[-1] for one in (*more, *texts) if one in more or "{" in one)
            self._words[place].update(_first_word(one, ends[place]) for one in more)

    def filled(self, kind: str, text: str, principal: Principal) -> str | None:
        """Returns a pattern with the claims of a principal; None if one is missing, or its value may not stand there."""
        for claim in _CLAIM.findall(text):
            if _value(claim, principal) is None or self._wrong(kind, claim, principal):
                return None
        return _CLAIM.sub(lambda found: str(_value(found[1], principal)), text)

    def all_filled(self, kind: str, texts: Iterable[str], principal: Principal) -> list[str]:
        """Returns the filled patterns, without those that cannot be filled."""
        found = (self.filled(kind, text, principal) for text in texts)
        return [one for one in found if one is not None]

    def why_not(self, kind: str, text: str, principal: Principal) -> str | None:
        """Returns why a claim that the principal has may not stand in a pattern; None if each that it has may."""
        found = (self._wrong(kind, claim, principal) for claim in _CLAIM.findall(text))
        return next(filter(None, found), None)

    def _wrong(self, kind: str, claim: str, principal: Principal) -> str | None:
        value = _value(claim, principal)
        if value is None:
            return None
        if not isinstance(value, str) or not _PLAIN.fullmatch(value):
            return f"{claim} is {value!r}, and not at most 255 letters, digits and _ . : @ -"
        for held in self._ends.get((kind, claim), ()):
            if held in value:
                return f"{claim} is {value!r}, but {held!r} stands beside {{{claim}}} in patterns for {kind}"
        if value in self._words.get((kind, claim), ()):
            return f"{claim} is {value!r}, with which another pattern for {kind} begins"
        return None


def _first_word(text: str, ends: Iterable[str]) -> str:
    return min((text.partition(end)[0] for end in ends), key=len)


def _value(claim: str, principal: Principal) -> object:
    return principal.name if claim == "name" else principal.claims.get(claim)
