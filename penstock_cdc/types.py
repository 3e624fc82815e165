"""The types of what the log, its consumers and the network return, take and show, for annotations and for ``isinstance``."""

from publishers.backups import BackupReport
from publishers.channels import ChannelFeed, ChannelStatistics, ListenerStatistics, Message
from publishers.commits.builder import TransactionBuilder, TransactionState
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Submission
from publishers.criteria.conditions import Comparison, Transition
from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from publishers.fanout.shared_publisher import PublisherState
from publishers.fanout.state import Checkpoint, State
from publishers.fanout.subscription import ChangeSubscription
from publishers.groups import (
    ClaimedDeliveries,
    ConsumerGroup,
    ConsumerGroups,
    DeadLetter,
    DeadLetters,
    DeliveryFeed,
    GroupMember,
    GroupSettings,
    GroupState,
    GroupStatistics,
    GroupWorker,
    PendingRow,
    PendingSummary,
)
from publishers.log.feed import ChangeFeed, ModelFeed
from publishers.log.health import HealthStatus, LogHealth
from publishers.log.history import History
from publishers.log.interface import Log
from publishers.log.links import LogLinks
from publishers.log.statistics import LogStatistics, Produced
from publishers.model.position import LogIdentity, PositionToken, Start
from publishers.schemas.registry import SchemaVersion
from publishers.slots import Slot, Slots, SlotState, SlotStatistics, SlotTotals
from publishers.snapshots import (
    ChunkEnd,
    PageRequest,
    SnapshotBegin,
    SnapshotCursor,
    SnapshotEnd,
    SnapshotSource,
)
from publishers.state import CompactedState, EntityRow, StatePage, StateStatistics
from publishers.store.store import StoreStatistics
from publishers.views.entities import ModelChange
from publishers.views.projection import Projection
from publishers.wal import Columns, Hold, HoldState, HoldStatistics
from transports.access.access import Access, Authenticator, Authoriser
from transports.access.principal import PeerCertificate
from transports.client.remote_feed import RemoteSubscription
from transports.client.remote_log import RemoteLog
from transports.codec.replies import RemoteChange, RemoteCommit, RemoteGap, RemoteModelChange
from transports.resp.server import RespServer
from transports.server.logs import FollowedName

__all__ = [
    "Access",
    "Authenticator",
    "Authoriser",
    "BackupReport",
    "Batch",
    "ChangeFeed",
    "ChangeSubscription",
    "ChannelFeed",
    "ChannelStatistics",
    "Checkpoint",
    "ChunkEnd",
    "ClaimedDeliveries",
    "Columns",
    "Commit",
    "CompactedState",
    "Comparison",
    "ConsumerGroup",
    "ConsumerGroups",
    "DeadLetter",
    "DeadLetters",
    "DeliveryFeed",
    "EntityRow",
    "FollowedName",
    "Gap",
    "GroupMember",
    "GroupSettings",
    "GroupState",
    "GroupStatistics",
    "GroupWorker",
    "HealthStatus",
    "History",
    "Hold",
    "HoldState",
    "HoldStatistics",
    "ListenerStatistics",
    "Log",
    "LogHealth",
    "LogIdentity",
    "LogLinks",
    "LogStatistics",
    "Message",
    "ModelChange",
    "ModelFeed",
    "PageRequest",
    "PeerCertificate",
    "PendingRow",
    "PendingSummary",
    "PositionToken",
    "Produced",
    "Projection",
    "PublisherState",
    "RemoteChange",
    "RemoteCommit",
    "RemoteGap",
    "RemoteLog",
    "RemoteModelChange",
    "RemoteSubscription",
    "RespServer",
    "SchemaVersion",
    "Slot",
    "SlotState",
    "SlotStatistics",
    "SlotTotals",
    "Slots",
    "SnapshotBegin",
    "SnapshotCursor",
    "SnapshotEnd",
    "SnapshotSource",
    "Start",
    "State",
    "StatePage",
    "StateStatistics",
    "StoreStatistics",
    "Submission",
    "TransactionBuilder",
    "TransactionState",
    "Transition",
]
