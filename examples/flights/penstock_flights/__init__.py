"""The demo: Spark streams a million changes of real flights into a change log that three subscribers follow.

``main`` is the command ``penstock demo``; it imports modules that need the extra ``demo`` only when it runs.
"""

from penstock_flights.command import main

__all__ = ["main"]
