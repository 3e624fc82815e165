"""The delivery engine of all publishers.

A `Drain` delivers every signal to one subscriber: serially, within its demand, without recursion. It pulls from a `Feed`,
whose `Outcome` ends the stream.
"""

from flow.drain.drain import Drain
from flow.drain.feed import COMPLETED, Completed, Failed, Feed, Outcome

__all__ = ["COMPLETED", "Completed", "Drain", "Failed", "Feed", "Outcome"]
