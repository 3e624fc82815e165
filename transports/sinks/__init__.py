"""Sinks carry the changes of a log to other systems, at least once and in order; each sink has its own slot.

::

    from transports.sinks import FileSink, SinkRunner

    with SinkRunner(log, "archive", FileSink("var/archive")):
        ...

A runner reads batches from its slot, writes them to its sink, retries transient errors, pauses when the target refuses a batch for
good, and stores the position of what the target has confirmed.
"""

from transports.sinks.errors import (
    NoSuchSink,
    SinkError,
    SinkStandsBy,
    SinkStopped,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)
from transports.sinks.file import FileSink
from transports.sinks.file_leases import FileLeases
from transports.sinks.lease import Lease, LeaseStore
from transports.sinks.log_sinks import LogSinks
from transports.sinks.options import SinkOptions
from transports.sinks.rejects import DeadLetterFile, DeadLetterStore
from transports.sinks.retry import RetryPolicy
from transports.sinks.runner import SinkRunner
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import EntitySpace, ItemResult, ItemVerdict, Sink, SinkBatch, SinkContext
from transports.sinks.state import SinkCounters, SinkState, SinkStatus
from transports.sinks.stream import StreamSink

__all__ = [
    "DeadLetterFile",
    "DeadLetterStore",
    "EntitySpace",
    "FileLeases",
    "FileSink",
    "ItemResult",
    "ItemVerdict",
    "Lease",
    "LeaseStore",
    "LogSinks",
    "NoSuchSink",
    "RetryPolicy",
    "SecretReference",
    "Sink",
    "SinkBatch",
    "SinkContext",
    "SinkCounters",
    "SinkError",
    "SinkOptions",
    "SinkRunner",
    "SinkStandsBy",
    "SinkState",
    "SinkStatus",
    "SinkStopped",
    "StreamSink",
    "TargetRefused",
    "TargetUnavailable",
    "TooLargeForTarget",
]
