"""The demo: Spark streams a million changes of real flights into a change log, and three subscribers follow.

``main`` is the command ``penstock demo``; it imports what needs the extra ``demo`` only when it runs.
"""

from penstock_flights.command import main

__all__ = ["main"]
