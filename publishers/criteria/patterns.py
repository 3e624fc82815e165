r"""Regular expressions over keys, with a bound on the time of every pattern and every key.

The syntax is the regular part of Python's: literals, ``.``, classes such as ``[a-z_]`` and ``[^0-9]``, ``\d \w \s`` (ASCII)
and their opposites, groups, ``|``, ``* + ?`` and ``{m,n}``. Features that need memory of what was matched (back references,
lookaround) are refused, and so are anchors, because the whole key must match. A dot stands for any character, and a byte of
a key that is not UTF-8 counts as one.

A pattern is compiled into an automaton with one place for each of its characters (Glushkov, 1961). Sets of places are integers:
a step is one lookup and one ``&``, and a lookup that is not memoized takes at most 65 unions (of four places each). An automaton
has at most 256 places. They are counted in the parsed pattern, repetitions multiplied, so a pattern that needs more is refused
before any repetition is written out.

``Pattern.of`` caches the last patterns by text, because criteria, predicate and index all ask for the same pattern. The
automaton is built by ``prepare``, on the thread that subscribes; its memo is bounded in entries.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain
from operator import or_
from typing import Final

__all__ = ["Pattern", "PatternError"]

_PLACES: Final = 256
_DEPTH: Final = 30
_MEMO: Final = 512
_KEPT: Final = 256
_LAST: Final = 0x10FFFF

_Ranges = tuple[tuple[int, int], ...]
_CLASSES: Final[dict[str, _Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class PatternError(ValueError):
    """A pattern is malformed, or uses syntax that is not supported; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class _Chars:
    """One character out of ranges."""

    ranges: _Ranges


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Parts in sequence."""

    parts: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _Choice:
    """Alternative parts."""

    parts: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A part, repeated from ``least`` to ``most`` times; None for any number."""

    part: "_Node"
    least: int
    most: int | None


_Node = _Chars | _Sequence | _Choice | _Repeat


class Pattern:
    """A regular expression over whole keys.

    Parsing takes time proportional to its text, and `prepare` time proportional to the square of its places.

    Attributes:
        head: Literal prefix of every matching key; possibly empty.
        places: Characters of the pattern, repetitions written out, from 0 to 256.

    Raises:
        PatternError: If it is malformed, uses unsupported syntax, or needs more than 256 places.
    """

    __slots__ = ("_automaton", "_tree", "head", "places")

    def __init__(self, pattern: str) -> None:
        self._tree = _Parser(pattern).parse()
        self.places: int = _places(self._tree)
        if self.places > _PLACES:
            raise PatternError(
                f"a regular expression of at most {_PLACES} characters, repetitions written out"
            )
        self._automaton: _Automaton | None = None
        self.head: bytes = _head(self._tree).encode("utf-8", "surrogateescape")

    @staticmethod
    @lru_cache(maxsize=_KEPT)
    def of(pattern: str) -> "Pattern":
        """Returns the pattern of a text, from the cache if it is among the last ones used.

        Raises:
            PatternError: As the class does.
        """
        return Pattern(pattern)

    def prepare(self) -> Callable[[bytes], bool]:
        """Builds the automaton, if there is none yet, and returns ``matches``."""
        if self._automaton is None:
            self._automaton = _Automaton(self._tree)
        return self.matches

    def matches(self, key: bytes) -> bool:
        """Whether the whole key matches."""
        automaton = self._automaton
        if automaton is None:
            automaton = self._automaton = _Automaton(self._tree)
        return automaton.accepts(key.decode("utf-8", "surrogateescape"))


def _places(tree: _Node) -> int:
    """Counts the characters of a tree, repetitions multiplied but not written out."""
    match tree:
        case _Chars():
            return 1
        case _Repeat(part, least, most):
            return _places(part) * (max(least, 1) if most is None else most)
        case _Sequence(parts) | _Choice(parts):
            return sum(map(_places, parts))


def _head(tree: _Node) -> str:
    found: list[str] = []
    for part in tree.parts if isinstance(tree, _Sequence) else (tree,):
        if not isinstance(part, _Chars) or len(part.ranges) != 1 or part.ranges[0][0] != part.ranges[0][1]:
            break
        found.append(chr(part.ranges[0][0]))
    return "".join(found)


class _Parser:
    """Parses a pattern by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise self._wrong("an opening parenthesis before )")
        return tree

    def _wrong(self, right: str) -> PatternError:
        return PatternError(f"a regular expression with {right} at character {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        self._at += 1
        return char

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _atom(self) -> _Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return _Chars(((0, _LAST),))
        if char == "\\":
            return _Chars(self._escape())
        if char in "*+?{":
            self._at -= 1
            raise self._wrong(f"something to repeat before {char}, or a backslash")
        if char in "^$":
            self._at -= 1
            raise self._wrong(f"no {char}: the whole key must match, so write .* where anything may stand,")
        return _Chars(((ord(char), ord(char)),))

    def _group(self) -> _Node:
        if self._peek() == "?":
            if not self._text.startswith("?:", self._at):
                raise self._wrong("( or (?: and nothing else that begins with (?")
            self._at += 2
        self._depth += 1
        if self._depth > _DEPTH:
            raise self._wrong(f"at most {_DEPTH} groups in each other")
        tree = self._choice()
        self._depth -= 1
        if self._next() != ")":
            raise self._wrong("a closing parenthesis")
        # The wrapping sequence keeps a group out of the literal head, which stays simple that way.
        return _Sequence((tree,))

    def _escape(self) -> _Ranges:
        char = self._next()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _others(ranges)
        if char in _ESCAPES:
            char = _ESCAPES[char]
        elif not char or (char.isascii() and char.isalnum()):
            self._at -= 1
            raise self._wrong(r"one of \d \w \s \D \W \S \n \t \r \f \v, or a backslash before a sign,")
        return ((ord(char), ord(char)),)

    def _class(self) -> _Node:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while (char := self._next()) != "]" or first:
            if not char:
                raise self._wrong("a closing ]")
            first = False
            low = self._escape() if char == "\\" else ((ord(char), ord(char)),)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                char = self._next()
                high = self._escape() if char == "\\" else ((ord(char), ord(char)),)
                if len(low) + len(high) > 2 or low[0][0] != low[0][1] or low[0][0] > high[0][0]:
                    raise self._wrong("a range from a lower character to a higher one")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        merged = _merged(ranges)
        return _Chars(_others(merged) if negated else merged)

    def _repeated(self, part: _Node) -> _Node:
        char = self._peek()
        if char not in ("*", "+", "?", "{"):
            return part
        self._at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._bounds()
        if self._peek() == "?":  # greediness does not matter to whether the whole key matches
            self._at += 1
        if self._peek() in ("*", "+", "?", "{"):
            raise self._wrong("one repetition after another only through a group")
        return _Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None]:
        inside, closing, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        if closing and all(n.isascii() and n.isdigit() and len(n) < 4 for n in (least or "0", most or "0")):
            low, high = int(least or "0"), int(most) if most else None if comma else int(least or "-1")
            if (least or most) and (high is None or low <= high):
                self._at += len(inside) + 1
                return low, high
        raise self._wrong("{m}, {m,}, {,n} or {m,n} of at most 999, or a backslash before {,")


def _merged(ranges: Sequence[tuple[int, int]]) -> _Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _others(ranges: _Ranges) -> _Ranges:
    bounds = [-1, *chain.from_iterable(ranges), _LAST + 1]
    return tuple(
        (bounds[n] + 1, bounds[n + 1] - 1)
        for n in range(0, len(bounds), 2)
        if bounds[n] + 1 <= bounds[n + 1] - 1
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: whether it may be empty, and at which places it may begin and end."""

    empty: bool
    first: int
    last: int


_NOTHING: Final = _Part(empty=True, first=0, last=0)


class _Automaton:
    """A Glushkov automaton: sets of places are integers, and place 0 is before the key."""

    def __init__(self, tree: _Node) -> None:
        self._tests: list[Callable[[int], bool]] = [lambda _: False]
        self._follow: list[int] = [0]
        whole = self._add(tree)
        self._follow[0] = whole.first
        self._final = whole.last | whole.empty
        self._masks: dict[str, int] = {}
        self._followers: dict[int, int] = {}
        self._unions = [_unions(self._follow[at : at + 4]) for at in range(0, len(self._follow), 4)]

    def accepts(self, key: str) -> bool:
        """Whether the automaton is at a final place after the whole key."""
        places = 1
        for char in key:
            mask = self._masks.get(char)
            if mask is None:
                mask = self._mask(char)
            after = self._followers.get(places)
            if after is None:
                after = self._after(places)
            places = after & mask
            if not places:
                return False
        return bool(places & self._final)

    def _mask(self, char: str) -> int:
        """Returns the places that accept a character."""
        if len(self._masks) >= _MEMO:
            self._masks = {}
        point = ord(char)
        found = sum(1 << place for place, test in enumerate(self._tests) if test(point))
        self._masks[char] = found
        return found

    def _after(self, places: int) -> int:
        """Returns the places that may follow any of the given places."""
        if len(self._followers) >= _MEMO:
            self._followers = {}
        found = 0
        for union, digit in zip(self._unions, reversed(f"{places:x}"), strict=False):
            found |= union[digit]
        self._followers[places] = found
        return found

    def _add(self, node: _Node) -> _Part:
        match node:
            case _Chars(ranges):
                return self._place(ranges)
            case _Sequence(parts):
                whole = _NOTHING
                for part in parts:
                    whole = self._joined(whole, self._add(part))
                return whole
            case _Choice(parts):
                found = [self._add(part) for part in parts]
                first = last = 0
                for one in found:
                    first, last = first | one.first, last | one.last
                return _Part(any(one.empty for one in found), first, last)
            case _Repeat(part, least, most):
                return self._repeated(part, least, most)

    def _place(self, ranges: _Ranges) -> _Part:
        place = len(self._tests)
        self._tests.append(_test(ranges))
        self._follow.append(0)
        return _Part(empty=False, first=1 << place, last=1 << place)

    def _joined(self, one: _Part, other: _Part) -> _Part:
        self._link(one.last, other.first)
        return _Part(
            one.empty and other.empty,
            one.first | (other.first if one.empty else 0),
            other.last | (one.last if other.empty else 0),
        )

    def _link(self, places: int, to: int) -> None:
        while places:
            lowest = places & -places
            self._follow[lowest.bit_length() - 1] |= to
            places ^= lowest

    def _repeated(self, part: _Node, least: int, most: int | None) -> _Part:
        whole = _NOTHING
        for number in range(max(least, 1) if most is None else most):
            before = len(self._tests)
            one = self._add(part)
            if len(self._tests) == before:  # an empty part stays empty, however often it is repeated
                return whole
            if most is None and number + 1 >= least:
                self._link(one.last, one.first)
            if number >= least:
                one = _Part(empty=True, first=one.first, last=one.last)
            whole = self._joined(whole, one)
        return whole


def _unions(follow: Sequence[int]) -> dict[str, int]:
    """Returns the followers of each set of four neighbouring places, by the hexadecimal digit of the set's bits."""
    return {
        f"{places:x}": reduce(or_, (to for bit, to in enumerate(follow) if places >> bit & 1), 0)
        for places in range(1 << len(follow))
    }


def _test(ranges: _Ranges) -> Callable[[int], bool]:
    if len(ranges) == 1:
        low, high = ranges[0]
        return lambda point: low <= point <= high
    lows = [low for low, _ in ranges]
    highs = [-1, *(high for _, high in ranges)]
    return lambda point: point <= highs[bisect_right(lows, point)]
