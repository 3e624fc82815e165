"""Change logs and their shared publishers: changes, their storage, and their delivery to many subscribers.

* `ChangeLog` is one log, `ChangeStore` a directory of named logs.
* `Change`, `Position`, `Criterion` and `Content`: what is delivered, from where, and which part of it.
* `Slot`, `ConsumerGroup`: positions that the log keeps for one consumer, or for consumers that share the changes.
* `SnapshotSource`: rows of a state before its changes.

``docs/architecture.md`` has a map of the packages.
"""

from publishers.backups import backup, restore
from publishers.channels import Channels
from publishers.commits.submission import Wait
from publishers.criteria.conditions import Where
from publishers.criteria.criteria import Criteria, Criterion
from publishers.groups import GroupDelivery
from publishers.log.changelog import ChangeLog
from publishers.losses import key_digest
from publishers.model.change import Action, Area, Change, Operation
from publishers.model.position import Position
from publishers.mutations.mutation import Mutation, rekey, remove, truncate, upsert
from publishers.options import LogOptions
from publishers.outbox import Outbox
from publishers.slots import Deduplicator
from publishers.snapshots import PageSource, SnapshotChange, SqlSource
from publishers.store.store import ChangeStore
from publishers.views.masking import Drop, Hash, Mask, Partial, Redact
from publishers.views.view import Content, Images, Integers, View

__all__ = [
    "Action",
    "Area",
    "Change",
    "ChangeLog",
    "ChangeStore",
    "Channels",
    "Content",
    "Criteria",
    "Criterion",
    "Deduplicator",
    "Drop",
    "GroupDelivery",
    "Hash",
    "Images",
    "Integers",
    "LogOptions",
    "Mask",
    "Mutation",
    "Operation",
    "Outbox",
    "PageSource",
    "Partial",
    "Position",
    "Redact",
    "SnapshotChange",
    "SqlSource",
    "View",
    "Wait",
    "Where",
    "backup",
    "key_digest",
    "rekey",
    "remove",
    "restore",
    "truncate",
    "upsert",
]
