"""For tests of applications: exactly so many changes of a feed, or an error that says what is missing."""

from publishers.testing import TooFew, collect, collect_async

__all__ = ["TooFew", "collect", "collect_async"]
