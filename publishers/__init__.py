"""Change logs and their shared publishers: what a change is, how it is kept, and how it is fanned out."""

from publishers.batch import Batch
from publishers.change import Action, Area, Change, Operation
from publishers.changelog import ChangeLog, Produced
from publishers.committer import Commit
from publishers.criteria.conditions import Comparison, Transition, Where
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import (
    AlreadyVisible,
    HistoryPruned,
    InvalidChange,
    InvalidCriteria,
    InvalidName,
    InvalidOption,
    LogBusy,
    LogClosed,
    LogDropped,
    LogError,
    LogExists,
    LogFailed,
    LogFull,
    LogReadOnly,
    NoSuchLog,
    NoSuchVersion,
    NotALog,
    NotAStore,
    PenstockError,
    PositionAhead,
    PositionError,
    PositionForeign,
    PositionForked,
    PositionMalformed,
    PublishingOff,
    TransactionTooLarge,
    WalCorrupted,
)
from publishers.feed import ChangeFeed
from publishers.gap import Gap
from publishers.history import History
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
from publishers.position import Position, PositionToken, Start
from publishers.schemas import SchemaVersion
from publishers.statistics import LogStatistics
from publishers.store.store import ChangeStore, StoreStatistics
from publishers.subscription import ChangeSubscription, Checkpoint, State
from publishers.views.masking import Drop, Hash, Mask, Partial, Redact
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, View
from publishers.wal import Hold, HoldState, HoldStatistics

__all__ = [
    "Action",
    "AlreadyVisible",
    "Area",
    "Batch",
    "Change",
    "ChangeFeed",
    "ChangeLog",
    "ChangeStore",
    "ChangeSubscription",
    "Checkpoint",
    "Commit",
    "Comparison",
    "Content",
    "Criteria",
    "Criterion",
    "Drop",
    "FieldChange",
    "Gap",
    "Hash",
    "History",
    "HistoryPruned",
    "Hold",
    "HoldState",
    "HoldStatistics",
    "Images",
    "InvalidChange",
    "InvalidCriteria",
    "InvalidName",
    "InvalidOption",
    "LogBusy",
    "LogClosed",
    "LogDropped",
    "LogError",
    "LogExists",
    "LogFailed",
    "LogFull",
    "LogOptions",
    "LogReadOnly",
    "LogStatistics",
    "Mask",
    "Mutation",
    "NoSuchLog",
    "NoSuchVersion",
    "NotALog",
    "NotAStore",
    "Operation",
    "Partial",
    "PenstockError",
    "Position",
    "PositionAhead",
    "PositionError",
    "PositionForeign",
    "PositionForked",
    "PositionMalformed",
    "PositionToken",
    "Produced",
    "Projection",
    "PublishingOff",
    "Redact",
    "SchemaVersion",
    "Start",
    "State",
    "StoreStatistics",
    "TransactionTooLarge",
    "Transition",
    "View",
    "WalCorrupted",
    "Where",
    "add",
    "apply_field",
    "changed_fields",
    "discard",
    "expire",
    "field_changes",
    "field_value",
    "push",
    "rekey",
    "remove",
    "remove_field",
    "schema",
    "set_field",
    "truncate",
    "upsert",
]
