"""Sinks: changes carried on to files, webhooks, SQL databases, Kafka, search indexes and caches, each from a slot of its own.

The sinks for servers of others are imported on first use: each needs the extra of its client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

import transports.sinks as _sinks
from transports.errors import ExtraMissing
from transports.sinks import *  # noqa: F403 - all that needs no extra, see __all__ there
from transports.sinks.oauth import ClientCredentials
from transports.sinks.sql_leases import SqlLeases
from transports.sinks.tls import TargetTls

if TYPE_CHECKING:
    from transports.sinks.cache import CacheSink
    from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
    from transports.sinks.search import SearchSink
    from transports.sinks.sql import SqlSink, SqlTable
    from transports.sinks.webhook import WebhookSink

__all__ = [
    "CacheSink",
    "ClientCredentials",
    "ExactlyOnceKafkaSink",
    "KafkaSink",
    "SearchSink",
    "SqlLeases",
    "SqlSink",
    "SqlTable",
    "TargetTls",
    "WebhookSink",
]
__all__ += _sinks.__all__

# The module of each name, and the extra that it needs.
_MODULES: Final = {
    "CacheSink": ("cache", "redis"),
    "ExactlyOnceKafkaSink": ("kafka", "kafka"),
    "KafkaSink": ("kafka", "kafka"),
    "SearchSink": ("search", "search"),
    "SqlSink": ("sql", "sql"),
    "SqlTable": ("sql", "sql"),
    "WebhookSink": ("webhook", "webhook"),
}


def __getattr__(name: str) -> object:
    """Imports a sink on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _MODULES[name]
    try:
        found: object = getattr(import_module(f"transports.sinks.{module}"), name)
    except ImportError as error:
        raise ExtraMissing(name, error.name or module, extra) from None
    globals()[name] = found
    return found
