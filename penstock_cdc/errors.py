"""The errors of the log, of its consumers, of delivery and of the network.

Each has data of its own and says whether a retry may succeed (``retryable``). Those of Spark are in ``penstock_cdc.spark``, those of
sinks in ``penstock_cdc.sinks``.
"""

from flow import errors as _flow
from flow.errors import *  # noqa: F403 - all of them, see __all__ there
from publishers import errors as _log
from publishers.channels import ChannelsClosed
from publishers.commits.errors import OutboxBehind, ProducerConflict
from publishers.errors import *  # noqa: F403 - likewise
from publishers.groups import errors as _groups
from publishers.groups.errors import *  # noqa: F403 - likewise
from publishers.slots import errors as _slots
from publishers.slots.errors import *  # noqa: F403 - likewise
from transports.errors import (
    CloseCode,
    ConnectionLost,
    ExtraMissing,
    Forbidden,
    RemoteError,
    ServerFailed,
    Unauthenticated,
)

__all__ = [
    "ChannelsClosed",
    "CloseCode",
    "ConnectionLost",
    "ExtraMissing",
    "Forbidden",
    "OutboxBehind",
    "ProducerConflict",
    "RemoteError",
    "ServerFailed",
    "Unauthenticated",
]
__all__ += _flow.__all__ + _log.__all__ + _groups.__all__ + _slots.__all__
