"""Parts of our own objects that no user sees and many tests need: each stands here once, with the reason.

A test that can say the same by statistics, health, an option or an injected clock takes that.
"""

from typing import Any

__all__ = [
    "access_of",
    "appending_of",
    "catalog_of",
    "committer_of",
    "connection_of",
    "connections_of",
    "context_of",
    "declared_of",
    "ended_of",
    "files_of",
    "filesystem_of",
    "following_of",
    "graphql_of",
    "head_writer_of",
    "house_step_of",
    "housekeeping_of",
    "intake_of",
    "link_of",
    "lock_of",
    "loop_of",
    "notifier_of",
    "outbound_of",
    "peers_of",
    "places_of",
    "pools_of",
    "progress_of",
    "publication_of",
    "queue_of",
    "receiver_of",
    "schemas_of",
    "service_of",
    "socket_of",
    "target_of",
    "thread_of",
    "uvicorn_of",
    "writer_of",
]


# A log.


def service_of(log: Any) -> Any:
    """Rings, registry and replayer. Statistics tell sums; a schedule is decided by what one ring or cursor has just now."""
    return log._service


def files_of(log: Any) -> Any:
    """The files of an open log. A step of the disk fails, or is held, in the middle of one commit."""
    return log._files


def committer_of(log: Any) -> Any:
    """The write path. A commit is held between two of its steps, where another one has to meet it."""
    return log._committer


def queue_of(committer: Any) -> Any:
    """Who waits to commit: no face tells of a commit that has not begun."""
    return committer._queue


def schemas_of(log: Any) -> Any:
    """The schemas of a log. Their file fails, or is held, while a commit brings a new one."""
    return log._schemas


def publication_of(log: Any) -> Any:
    """The publish gate, which a test holds so that durable versions stay invisible."""
    return log._publication


def places_of(log: Any) -> Any:
    """Finds and judges positions; its reads are counted or changed."""
    return log._places


def following_of(log: Any) -> Any:
    """How a follower looks for news: one look now, instead of the next by time or datagram."""
    return log._following


def housekeeping_of(log: Any) -> Any:
    """The thread of housekeeping: asked for a step now, or stopped so that none comes in between."""
    return log._housekeeping


def house_step_of(log: Any) -> Any:
    """One step of housekeeping, on the thread of the test."""
    return housekeeping_of(log)._step


# The write-ahead log.


def catalog_of(owner: Any) -> Any:
    """The segments of a reader or of a log, with what is read of them: whether an index or a file is held has no other face."""
    return owner._catalog


def writer_of(wal: Any) -> Any:
    """The writer: rolls a segment or stands at a byte where the test wants it."""
    return wal._writer


def head_writer_of(wal: Any) -> Any:
    """Writes HEAD at a chosen moment, as housekeeping would some time."""
    return wal._head_writer


def peers_of(files: Any) -> Any:
    """How other processes are told: the datagram is lost, or the claim is another's."""
    return files._peers


def notifier_of(peers: Any) -> Any:
    """The datagram sockets, which fail."""
    return peers._notifier


def filesystem_of(owner: Any) -> Any:
    """The file system that an object was given, to be looked at or failed where the test has only the object."""
    return owner._filesystem


def lock_of(owner: Any) -> Any:
    """A lock, which the test holds to stop another thread at a known line."""
    return owner._lock


# A server and its client.


def appending_of(application: Any) -> Any:
    """What appends under way hold: bounds are bytes of the whole server, and metrics follow them later."""
    return application._appending


def connections_of(application: Any) -> Any:
    """The open connections: one is taken to be stalled, cut or looked at."""
    return application._connections


def ended_of(application: Any) -> Any:
    """The connections that have ended, for which a test waits before it counts what they left."""
    return application._ended


def pools_of(application: Any) -> Any:
    """The threads of a server, which a test occupies."""
    return application._pools


def access_of(application: Any) -> Any:
    """Who may do what, changed while connections are open."""
    return application._access


def graphql_of(application: Any) -> Any:
    """The GraphQL endpoint, whose documents are counted."""
    return application._graphql


def loop_of(server: Any) -> Any:
    """The event loop of a server, on which a test does something in between."""
    return server._loop


def thread_of(owner: Any) -> Any:
    """The thread of an object, which has to end."""
    return owner._thread


def uvicorn_of(server: Any) -> Any:
    """The server of uvicorn, whose connections and sockets are looked at."""
    return server._uvicorn


def link_of(connection: Any) -> Any:
    """The link of a connection or of a client, which is stalled or cut."""
    return connection._link


def receiver_of(link: Any) -> Any:
    """What a link does with arrived bytes, replaced by something that records them."""
    return link._receiver


def outbound_of(connection: Any) -> Any:
    """The executor of a connection, whose turns are taken by hand."""
    return connection._outbound


def connection_of(remote: Any) -> Any:
    """The connection of a client, which is lost."""
    return remote._connection


def socket_of(connection: Any) -> Any:
    """The socket of a client, which is cut as a network would."""
    return connection._socket


# A sink.


def progress_of(owner: Any) -> Any:
    """What a slot has given, or a target has confirmed, and is not stored: a kill in between is made here."""
    return owner._progress


def target_of(machine: Any) -> Any:
    """The target of a sink as its runner sees it."""
    return machine._target


def context_of(target: Any) -> Any:
    """The context that a target was opened with, of which another is made."""
    return target._context


def intake_of(machine: Any) -> Any:
    """The slot and supply of a sink: its lease or its feed is lost."""
    return machine._intake


def declared_of(sink: Any) -> Any:
    """What a file declares of a sink, compared with what a program declares."""
    return sink._declared
