"""Change logs and their shared publishers: what a change is, how it is kept, and how it is fanned out."""

from publishers.batch import Batch
from publishers.change import Area, Change, Content, Images, Operation, View
from publishers.changelog import ChangeLog, Produced
from publishers.committer import Commit
from publishers.criteria import Criteria, Criterion
from publishers.errors import (
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
from publishers.history import History
from publishers.mutation import Mutation, remove, upsert
from publishers.options import LogOptions
from publishers.position import Position, PositionToken
from publishers.statistics import LogStatistics
from publishers.store import ChangeStore, StoreStatistics
from publishers.subscription import ChangeSubscription, Checkpoint, State

__all__ = [
    "Area",
    "Batch",
    "Change",
    "ChangeFeed",
    "ChangeLog",
    "ChangeStore",
    "ChangeSubscription",
    "Checkpoint",
    "Commit",
    "Content",
    "Criteria",
    "Criterion",
    "History",
    "HistoryPruned",
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
    "Mutation",
    "NoSuchLog",
    "NotALog",
    "NotAStore",
    "Operation",
    "PenstockError",
    "Position",
    "PositionAhead",
    "PositionError",
    "PositionForeign",
    "PositionForked",
    "PositionMalformed",
    "PositionToken",
    "Produced",
    "PublishingOff",
    "State",
    "StoreStatistics",
    "TransactionTooLarge",
    "View",
    "WalCorrupted",
    "remove",
    "upsert",
]
