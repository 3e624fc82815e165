"""The places of a criterion in a matching index: the cheapest question that distinguishes it, and what remains to test."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from publishers.criteria.conditions import LEAVING, Comparison, Image, Transition, Where, value_key
from publishers.criteria.criteria import Criterion
from publishers.criteria.globs import glob_gram, glob_head, glob_matcher, glob_tail
from publishers.criteria.predicate import Check, CompiledCriterion

__all__ = ["PLACES_MAX", "Place", "Question", "asks_of", "places_of", "rest_of"]

PLACES_MAX: Final = 10_000
"""Number of places above which a criterion is not entered for each of its entity types, but for any entity type."""


class Question:
    """The names of the questions that an index asks."""

    EVERY: Final = "every"
    KEYS: Final = "keys"
    HEADS: Final = "heads"
    TAILS: Final = "tails"
    GRAMS: Final = "grams"
    SCANS: Final = "scans"
    NAMES: Final = "names"
    VALUES: Final = "values"
    GATES: Final = "gates"
    TESTS: Final = "tests"


class Place(NamedTuple):
    """One place of a criterion in the index.

    Attributes:
        entity_type: Only changes of this type lead to the place; None for any.
        question: The question that leads to it.
        group: Part of the question: the length of a head or tail, or the field of a value.
        key: The answer that leads to it.
        make: Compiles the question, if it must be evaluated rather than looked up.
        proves: Whether the answer alone proves the field of the criterion that the question covers.
    """

    entity_type: str | None
    question: str
    group: Any = None
    key: Any = None
    make: Callable[[], Any] | None = None
    proves: bool = True


def places_of(compiled: CompiledCriterion) -> Iterator[Place]:
    """Yields the places of a criterion, each once; every call yields the same places."""
    criterion = compiled.criterion
    distinct: dict[tuple[object, ...], Place] = {}
    for place in _questions(compiled, criterion):  # patterns may share a head
        where = (place.question, place.group, place.key)
        distinct[where] = place._replace(proves=place.proves and distinct.get(where, place).proves)
    found = list(distinct.values())
    if not criterion.entity_types or len(criterion.entity_types) * len(found) > PLACES_MAX:
        yield from found
        return
    for name in criterion.entity_types:
        for place in found:
            yield place._replace(entity_type=name)


def asks_of(compiled: CompiledCriterion, places: list[Place]) -> int:
    """Returns the number of questions that a criterion asks of every change, because no look-up answers them."""
    scans = {place.key for place in places if place.question == Question.SCANS}
    question, criterion = places[0].question, compiled.criterion
    tests = len(criterion.where) + len(criterion.also) if question == Question.TESTS else 0
    gates = len(criterion.annotations) if question in (Question.GATES, Question.TESTS) else 0
    return len(scans) + tests + gates


def rest_of(compiled: CompiledCriterion, places: list[Place]) -> tuple[Check | None, int]:
    """Returns the check that remains for changes that led to a place of the criterion, or None; and its number of questions."""
    criterion, question = compiled.criterion, places[0].question
    proved = all(place.proves for place in places)
    left: list[tuple[Check, int]] = []
    if criterion.entity_types and places[0].entity_type is None:
        left.append((_type_check(criterion.entity_types), 1))
    if compiled.annotated is not None and question not in (Question.GATES, Question.TESTS):
        left.append((compiled.annotated, len(criterion.annotations)))
    by_glob = not compiled.keys and compiled.globs is not None
    by_pattern = not compiled.keys and compiled.globs is None
    if compiled.globs is not None and not (by_glob and proved):
        left.append((_key_check(compiled.globs), len(criterion.key_globs)))
    if compiled.patterns is not None and not (by_pattern and proved):
        left.append((_key_check(compiled.patterns), len(criterion.key_patterns)))
    if compiled.changed is not None and question != Question.NAMES:
        left.append((compiled.changed, 1))
    if compiled.values is not None and not (question in (Question.VALUES, Question.TESTS) and proved):
        left.append((compiled.values, len(criterion.where)))
    if compiled.also is not None and question != Question.TESTS:
        left.append((compiled.also, len(criterion.also)))
    checks = [check for check, _ in left]
    questions = sum(count for _, count in left)
    return _all_of(checks) if checks else None, questions


def _questions(compiled: CompiledCriterion, criterion: Criterion) -> Iterator[Place]:
    if compiled.keys:
        for key in compiled.keys:
            yield Place(None, Question.KEYS, key=key)
    elif criterion.key_globs:
        for glob in criterion.key_globs:
            yield _glob_place(glob)
    elif criterion.key_patterns:
        for text, pattern in compiled.expressions.items():
            if pattern.head:
                yield Place(None, Question.HEADS, len(pattern.head), pattern.head, proves=False)
            else:
                yield Place(None, Question.SCANS, key=("pattern", text), make=_maker(pattern.matches))
    elif criterion.changed:
        for name in criterion.changed:
            yield Place(None, Question.NAMES, key=name)
    elif criterion.where:
        yield from _value_places(compiled, criterion)
    elif compiled.annotated is not None:
        yield Place(None, Question.GATES, key=criterion.annotations, make=_maker(compiled.annotated))
    else:
        yield Place(None, Question.EVERY)


def _glob_place(glob: str) -> Place:
    head, proves = glob_head(glob)
    if head:
        return Place(None, Question.HEADS, len(head), head, proves=proves)
    tail, proves = glob_tail(glob)
    if tail:
        return Place(None, Question.TAILS, len(tail), tail, proves=proves)
    gram = glob_gram(glob)
    if gram:
        return Place(None, Question.GRAMS, len(gram), gram, proves=False)
    return Place(None, Question.SCANS, key=("glob", glob), make=partial(glob_matcher, glob))


def _value_places(compiled: CompiledCriterion, criterion: Criterion) -> Iterator[Place]:
    transitions = criterion.transitions
    for condition in sorted(criterion.where, key=lambda one: one.text):
        image = _image(condition, transitions)
        if image is not None and condition.comparison in (Comparison.EQ, Comparison.IN):
            values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
            alone = len(criterion.where) == 1 and not transitions
            for value in values:
                yield Place(None, Question.VALUES, (image, condition.path), value_key(value), proves=alone)
            return
    checks = [check for check in (compiled.annotated, compiled.values, compiled.also) if check is not None]
    key = criterion.where, transitions, criterion.annotations, criterion.also
    yield Place(None, Question.TESTS, key=key, make=_maker(_all_of(checks)))


def _image(condition: Where, transitions: frozenset[Transition]) -> Image | None:
    """Returns the image on which a condition holds whenever the criterion is fulfilled; None if that varies."""
    if not transitions:
        return condition.image
    if transitions.isdisjoint(LEAVING):
        return Image.AFTER
    return None if transitions & {Transition.ENTERED, Transition.MAYBE_LEFT} else Image.BEFORE


def _all_of(checks: list[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    return lambda facts, index: all(check(facts, index) for check in checks)


def _maker(question: Any) -> Callable[[], Any]:
    return lambda: question


def _type_check(names: frozenset[str]) -> Check:
    return lambda facts, index: facts.entity_type(index) in names


def _key_check(matches: Callable[[bytes], bool]) -> Check:
    return lambda facts, index: matches(facts.key(index))
