"""Criteria of subscribers: criterions, their compiled predicates, and the index that matches many predicates at once."""
