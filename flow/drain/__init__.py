"""The delivery engine of all publishers: `Drain`, and the `Feed` from which it pulls."""

from flow.drain.drain import Drain
from flow.drain.feed import COMPLETED, Completed, Failed, Feed, Outcome

__all__ = ["COMPLETED", "Completed", "Drain", "Failed", "Feed", "Outcome"]
