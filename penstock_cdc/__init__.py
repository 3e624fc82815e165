"""Change data capture with backpressure: the one package to import.

::

    from penstock_cdc import ChangeLog, Content, Criterion, connect, flow, serve

* Here: what programs construct and call. ``types`` and ``errors``: what these return and raise.
* ``flow``: Reactive Streams. ``fields``, ``lossless`` and ``mutations``: what is committed, beyond ``upsert`` and ``remove``.
* ``sinks``, ``spark``, ``tracing``: ways on to other systems. ``testing`` and ``tck``: for tests.

Everything here comes from ``flow``, ``publishers`` and ``transports``, on first use: importing this package imports nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # from typing it would be most of the import
if TYPE_CHECKING:
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
    from transports.access.grant import Grant, LogAction
    from transports.access.jwt_verifier import JwtVerifier
    from transports.access.peer_certificates import AnyOf, PeerCertificates
    from transports.access.policy import Policy
    from transports.access.principal import ANONYMOUS, Credentials, Principal
    from transports.access.tokens import TokenFile
    from transports.browser.pages import Page
    from transports.client.backoff import Backoff
    from transports.client.remote_log import connect
    from transports.limits import Limits
    from transports.resp.server import serve_resp
    from transports.server.asgi import Application
    from transports.server.tls import ServerCertificate
    from transports.server.uvicorn import Server, serve
    from transports.server.ws_protocol import LinkProtocol as LinkProtocol

# Without LinkProtocol, which needs an extra: `from penstock_cdc import *` must not.
__all__ = [
    "ANONYMOUS",
    "Action",
    "AnyOf",
    "Application",
    "Area",
    "Backoff",
    "Change",
    "ChangeLog",
    "ChangeStore",
    "Channels",
    "Content",
    "Credentials",
    "Criteria",
    "Criterion",
    "Deduplicator",
    "Drop",
    "Grant",
    "GroupDelivery",
    "Hash",
    "Images",
    "Integers",
    "JwtVerifier",
    "Limits",
    "LogAction",
    "LogOptions",
    "Mask",
    "Mutation",
    "Operation",
    "Outbox",
    "Page",
    "PageSource",
    "Partial",
    "PeerCertificates",
    "Policy",
    "Position",
    "Principal",
    "Redact",
    "Server",
    "ServerCertificate",
    "SnapshotChange",
    "SqlSource",
    "TokenFile",
    "View",
    "Wait",
    "Where",
    "backup",
    "connect",
    "key_digest",
    "rekey",
    "remove",
    "restore",
    "serve",
    "serve_resp",
    "truncate",
    "upsert",
]

_MODULES = (
    "errors",
    "fields",
    "flow",
    "lossless",
    "mutations",
    "sinks",
    "spark",
    "tck",
    "testing",
    "tracing",
    "types",
)


def __getattr__(name: str) -> object:
    """Imports a name or a module on first use (PEP 562)."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in __all__ and name != "LinkProtocol":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    transports = import_module("transports")
    outside = name in transports.__all__ or name == "LinkProtocol"
    found: object = getattr(transports if outside else import_module("publishers"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Returns all names and modules, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})
