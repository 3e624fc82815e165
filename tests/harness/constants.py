"""Sets a constant of the code for one test: a bound that no user has a reason to set, and that a test cannot reach as it is."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import pytest

__all__ = ["BOUNDS", "as_they_are", "set_bounds", "set_constant", "without_bounds"]

BOUNDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ack_every": ("publishers.slots.book.ACK_EVERY", "publishers.groups.book.ACK_EVERY"),
    "append_threads": ("transports.quotas.pool.APPEND_THREADS",),
    "attached_weight": ("publishers.fanout.weights.ATTACHED_WEIGHT",),
    "body_rate": ("transports.http.bodies.BODY_RATE",),
    "body_timeout": ("transports.http.bodies.BODY_TIMEOUT",),
    "counted_types": ("publishers.fanout.service.COUNTED_TYPES",),
    "detach_weight": ("publishers.fanout.weights.DETACH_WEIGHT", "publishers.fanout.registry.DETACH_WEIGHT"),
    "detached_share": ("publishers.fanout.service.DETACHED_SHARE",),
    "dispatch_threads_max": ("publishers.fanout.service.DISPATCH_THREADS_MAX",),
    "document_aliases": ("transports.graphql.cost.DOCUMENT[aliases]",),
    "document_bytes": ("transports.graphql.cost.DOCUMENT_BYTES",),
    "document_cache_bytes": ("transports.graphql.documents.DOCUMENT_CACHE_BYTES",),
    "document_depth": ("transports.graphql.cost.DOCUMENT[depth]",),
    "document_fields": ("transports.graphql.cost.DOCUMENT[fields]",),
    "document_fragments": ("transports.graphql.cost.DOCUMENT[fragments]",),
    "document_pairs": ("transports.graphql.cost.DOCUMENT[pairs]",),
    "document_tokens": (
        "transports.graphql.cost.DOCUMENT_TOKENS",
        "transports.graphql.documents.DOCUMENT_TOKENS",
    ),
    "fence_events": (
        "transports.protocol.graphql_ws.FENCE_EVENTS",
        "transports.server.graphql_driver.FENCE_EVENTS",
    ),
    "fence_timeout": ("transports.protocol.graphql_ws.FENCE_TIMEOUT",),
    "fence_width": ("transports.protocol.graphql_ws.FENCE_WIDTH",),
    "frames_per_message": ("transports.server.ws_protocol.FRAMES_PER_MESSAGE",),
    "group_bytes": ("publishers.commits.queue.GROUP_BYTES", "publishers.commits.group_commit.GROUP_BYTES"),
    "group_calls": ("transports.protocol.consumers.GROUP_CALLS", "transports.protocol.server.GROUP_CALLS"),
    "group_transactions": ("publishers.commits.queue.GROUP_TRANSACTIONS",),
    "head_bytes": ("transports.server.http_protocol.HEAD_BYTES",),
    "heaviest": ("transports.limits.HEAVIEST",),
    "high_water": (
        "transports.limits.HIGH_WATER",
        "transports.server.http_protocol.HIGH_WATER",
        "transports.server.ws_protocol.HIGH_WATER",
        "transports.server.asgi_link.HIGH_WATER",
        "transports.resp.connection.HIGH_WATER",
    ),
    "history_bytes": ("transports.graphql.context.HISTORY_BYTES",),
    "init_timeout": ("transports.protocol.connection.INIT_TIMEOUT",),
    "inline_weight": (
        "transports.codec.messages.INLINE_WEIGHT",
        "transports.codec.again.INLINE_WEIGHT",
        "transports.server.driver.INLINE_WEIGHT",
    ),
    "max_transaction_bytes": ("publishers.wal.append.sealed.MAX_TRANSACTION_BYTES",),
    "max_transaction_changes": ("publishers.wal.append.sealed.MAX_TRANSACTION_CHANGES",),
    "replay_slice_bytes": ("publishers.fanout.resync_slice.REPLAY_SLICE_BYTES",),
    "replay_threads": ("publishers.fanout.service.REPLAY_THREADS",),
    "resp_arguments": (
        "transports.resp.connection.RESP_ARGUMENTS",
        "transports.resp.transacting.RESP_ARGUMENTS",
    ),
    "resp_pipeline": ("transports.resp.connection.RESP_PIPELINE",),
    "resp_refusals": ("transports.resp.connection.RESP_REFUSALS",),
    "resp_reply_bytes": ("transports.resp.port.RESP_REPLY_BYTES",),
    "resync_checkpoint": ("transports.protocol.subscriptions.RESYNC_CHECKPOINT",),
    "scans_waiting": ("transports.quotas.pool.SCANS_WAITING", "transports.limits.SCANS_WAITING"),
    "slot_journal_bytes": ("publishers.slots.book.SLOT_JOURNAL_BYTES",),
    "source_threads": ("publishers.log.readable.SOURCE_THREADS",),
    "state_behind_bytes": ("publishers.state.compacted_state.STATE_BEHIND_BYTES",),
    "state_interval": ("publishers.state.compacted_state.STATE_INTERVAL",),
    "state_share": ("publishers.state.compacted_state.STATE_SHARE",),
    "tail_idle": ("publishers.log.tailing.TAIL_IDLE", "publishers.log.health.TAIL_IDLE"),
    "transaction_idle": (
        "transports.protocol.parts.TRANSACTION_IDLE",
        "transports.protocol.server.TRANSACTION_IDLE",
    ),
    "transactions": ("transports.protocol.parts.TRANSACTIONS", "transports.protocol.server.TRANSACTIONS"),
    "variable_values": ("transports.graphql.cost.VARIABLE_VALUES",),
}
"""The bounds that are constants, by the names that they have in documentation and errors, and every module that has one."""

_PATCH: Final = pytest.MonkeyPatch()


def set_constant(patch: pytest.MonkeyPatch, *place_and_value: Any) -> None:
    """As ``patch.setattr``, for a module and the name of a constant of it, or for its dotted name; undone with ``patch``."""
    setting: Callable[..., None] = patch.setattr
    setting(*place_and_value)


def set_bounds(**values: Any) -> None:
    """Sets bounds that are constants, until the end of the test; or of the process, where no test runs."""
    for name, value in values.items():
        for place in BOUNDS[name]:
            module, _, constant = place.rpartition(".")
            table, _, key = constant.rstrip("]").partition("[")
            if key:
                _PATCH.setitem(getattr(import_module(module), table), key, value)
            else:
                set_constant(_PATCH, place, value)


def without_bounds(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sets those of the given values that are constants, and returns the others, which are options."""
    set_bounds(**{name: value for name, value in given.items() if name in BOUNDS})
    return {name: value for name, value in given.items() if name not in BOUNDS}


def as_they_are() -> None:
    """Gives all bounds their own values again."""
    _PATCH.undo()
