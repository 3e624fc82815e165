"""Change logs and their shared publishers: changes, their storage, and their delivery to many subscribers.

* `ChangeLog` is one log, `ChangeStore` a directory of named logs.
* `Change`, `Position`, `Criterion` and `Content`: what is delivered, from where, and which part of it.
* `Slot`, `ConsumerGroup`: positions that the log keeps for one consumer, or for consumers that share the changes.
* `SnapshotSource`: rows of a state before its changes.

``docs/architecture.md`` has a map of the packages.
"""

from publishers import errors
from publishers.backups import BackupReport, backup, restore
from publishers.channels import Channels
from publishers.commits.builder import TransactionBuilder, TransactionState
from publishers.commits.errors import OutboxBehind, ProducerConflict
from publishers.commits.group_commit import Commit
from publishers.commits.submission import Submission, Wait
from publishers.criteria.conditions import Comparison, Transition, Where
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import *  # noqa: F403 - all errors, see __all__ there
from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from publishers.fanout.shared_publisher import Standing
from publishers.fanout.state import Checkpoint, State
from publishers.fanout.subscription import ChangeSubscription
from publishers.groups import (
    ClaimedDeliveries,
    ConsumerGroup,
    ConsumerGroups,
    DeadLetter,
    DeadLetters,
    DeliveryFeed,
    GroupDelivery,
    GroupMember,
    GroupSettings,
    GroupState,
    GroupStatistics,
    GroupWorker,
    PendingRow,
    PendingSummary,
)
from publishers.groups import errors as group_errors
from publishers.groups.errors import *  # noqa: F403 - likewise
from publishers.log.changelog import ChangeLog
from publishers.log.feed import ChangeFeed, ModelFeed
from publishers.log.health import LogHealth, Soundness
from publishers.log.history import History
from publishers.log.links import LogLinks
from publishers.log.statistics import LogStatistics, Produced
from publishers.losses import key_digest
from publishers.model.change import Action, Area, Change, Operation
from publishers.model.position import LogIdentity, Position, PositionToken, Start
from publishers.mutations.copies import copied
from publishers.mutations.fields import (
    FieldChange,
    add,
    apply_field,
    changed_fields,
    discard,
    field_changes,
    field_value,
    push,
    remove_field,
    set_field,
)
from publishers.mutations.mutation import Mutation, expire, rekey, remove, schema, truncate, upsert
from publishers.options import LogOptions
from publishers.outbox import Outbox
from publishers.schemas.registry import SchemaVersion
from publishers.slots import Deduplicator, Slot, Slots, SlotState, SlotStatistics, SlotTotals
from publishers.slots import errors as slot_errors
from publishers.slots.errors import *  # noqa: F403 - likewise
from publishers.snapshots import (
    ChunkEnd,
    PageRequest,
    PageSource,
    SnapshotBegin,
    SnapshotChange,
    SnapshotCursor,
    SnapshotEnd,
    SnapshotSource,
    SqlSource,
)
from publishers.state import CompactedState, EntityRow, StatePage, StateStatistics
from publishers.store.store import ChangeStore, StoreStatistics
from publishers.views.entities import ModelChange
from publishers.views.masking import Drop, Hash, Mask, Partial, Redact
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, View
from publishers.wal import Columns, Hold, HoldState, HoldStatistics

__all__ = [
    "Action",
    "Area",
    "BackupReport",
    "Batch",
    "Change",
    "ChangeFeed",
    "ChangeLog",
    "ChangeStore",
    "ChangeSubscription",
    "Channels",
    "Checkpoint",
    "ChunkEnd",
    "ClaimedDeliveries",
    "Columns",
    "Commit",
    "CompactedState",
    "Comparison",
    "ConsumerGroup",
    "ConsumerGroups",
    "Content",
    "Criteria",
    "Criterion",
    "DeadLetter",
    "DeadLetters",
    "Deduplicator",
    "DeliveryFeed",
    "Drop",
    "EntityRow",
    "FieldChange",
    "Gap",
    "GroupDelivery",
    "GroupMember",
    "GroupSettings",
    "GroupState",
    "GroupStatistics",
    "GroupWorker",
    "Hash",
    "History",
    "Hold",
    "HoldState",
    "HoldStatistics",
    "Images",
    "Integers",
    "LogHealth",
    "LogIdentity",
    "LogLinks",
    "LogOptions",
    "LogStatistics",
    "Mask",
    "ModelChange",
    "ModelFeed",
    "Mutation",
    "Operation",
    "Outbox",
    "OutboxBehind",
    "PageRequest",
    "PageSource",
    "Partial",
    "PendingRow",
    "PendingSummary",
    "Position",
    "PositionToken",
    "Produced",
    "ProducerConflict",
    "Projection",
    "Redact",
    "SchemaVersion",
    "Slot",
    "SlotState",
    "SlotStatistics",
    "SlotTotals",
    "Slots",
    "SnapshotBegin",
    "SnapshotChange",
    "SnapshotCursor",
    "SnapshotEnd",
    "SnapshotSource",
    "Soundness",
    "SqlSource",
    "Standing",
    "Start",
    "State",
    "StatePage",
    "StateStatistics",
    "StoreStatistics",
    "Submission",
    "TransactionBuilder",
    "TransactionState",
    "Transition",
    "View",
    "Wait",
    "Where",
    "add",
    "apply_field",
    "backup",
    "changed_fields",
    "copied",
    "discard",
    "expire",
    "field_changes",
    "field_value",
    "key_digest",
    "push",
    "rekey",
    "remove",
    "remove_field",
    "restore",
    "schema",
    "set_field",
    "truncate",
    "upsert",
]
__all__ += errors.__all__ + group_errors.__all__ + slot_errors.__all__
