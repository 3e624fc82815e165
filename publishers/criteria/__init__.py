"""What subscribers are interested in, and which changes that is: wishes, their predicates, and the index over many."""

from publishers.criteria.conditions import Comparison, Image, Transition, Where
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.index import MatchingIndex
from publishers.criteria.predicate import Predicate

__all__ = [
    "Comparison",
    "Criteria",
    "Criterion",
    "Image",
    "MatchingIndex",
    "Predicate",
    "Transition",
    "Where",
]
