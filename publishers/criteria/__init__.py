"""Which changes a subscriber wants, and which subscribers a change concerns.

* `Criteria` and `Criterion`: the subscriber's selection, normalised and hashable.
* `Predicate`: criteria compiled to select the rows of a block.
* `MatchingIndex`: finds the predicates that match a block without evaluating the others.
"""
