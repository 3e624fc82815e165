"""Publishers, subscribers and processors that are broken by intent, each in one way: they prove that the kit sees it.

`PUBLISHERS`, `SUBSCRIBERS` and `PROCESSORS` list them by name, with the tests that catch them.
"""

from tests.tck.broken import demand, naive, processors, streams, subscribers, subscribing
from tests.tck.broken.catalogue import PROCESSORS, PUBLISHERS, SUBSCRIBERS, Broken

__all__ = [
    "PROCESSORS",
    "PUBLISHERS",
    "SUBSCRIBERS",
    "Broken",
    "demand",
    "naive",
    "processors",
    "streams",
    "subscribers",
    "subscribing",
]
