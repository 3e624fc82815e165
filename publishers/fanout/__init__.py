"""How changes reach subscribers: shared publishers with their rings, cursors and groups, and the replayer of a log."""

from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap, OnGap
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import SharedPublisher
from publishers.fanout.state import Checkpoint, State
from publishers.fanout.subscription import ChangeSubscription
from publishers.fanout.watermark import Watermark

__all__ = [
    "Batch",
    "ChangeSubscription",
    "Checkpoint",
    "Gap",
    "OnGap",
    "Service",
    "SharedPublisher",
    "State",
    "Watermark",
]
