"""``penstock serve``: serves a log, or all logs of a store, on a port until it is interrupted."""

import argparse
import contextlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import FrameType
from typing import Any, Final

from publishers.errors import InvalidOption, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.snapshots import SnapshotSource, SqlSource
from publishers.snapshots.source import checked_sources
from publishers.store.store import ChangeStore
from transports.access.access import EVERYBODY
from transports.access.grant import Grant, LogAction, wrong_pattern
from transports.access.host_names import is_loopback
from transports.access.peer_certificates import PeerCertificates
from transports.access.policy import Policy
from transports.access.tokens import TokenFile
from transports.access.web_origins import checked_origins
from transports.cli import lines
from transports.cli.arguments import ArgumentParser, number, readers_of
from transports.cli.interrupts import wait_for
from transports.cli.sinks import run_beside
from transports.cli.source import check_directory, is_store
from transports.cli.view import add_lens, view_of
from transports.errors import ExtraMissing
from transports.limits import Limits
from transports.resp.server import serve_resp
from transports.server.logs import FollowedName
from transports.server.tls import ServerCertificate
from transports.server.uvicorn import Server
from transports.server.uvicorn import serve as start
from transports.sinks.config import read_sinks
from transports.sinks.endpoint import SinksEndpoint
from transports.sinks.errors import SinkError
from transports.sinks.log_sinks import LogSinks
from transports.sinks.secrets import SecretReference
from transports.tcp.accepting import raise_limit

__all__ = ["add_arguments", "run", "sources_of"]


_PYTHON: Final = re.compile(r"[\w.]+:[\w.]+")
_REFERENCES: Final = ("env:", "file:")
_SOURCE: Final = (
    "MODULE:NAME of a source, or TYPE=URL#TABLE of a table, such as 'order=sqlite:///shop.db#orders' or "
    "'order=env:SHOP_URL#orders'"
)


def sources_of(named: Sequence[str]) -> Sequence[SnapshotSource]:
    """Returns the sources that ``--source`` names, in order.

    Args:
        named: Each ``MODULE:NAME``, a source, several sources, or a function without arguments that returns them, imported
            from the working directory too; or ``TYPE=URL#TABLE``, a table with a primary key whose rows are entities of that
            type. A URL with a password may be replaced by a reference to it: ``env:NAME`` or ``file:PATH``.

    Raises:
        InvalidOption: If a source is invalid, cannot be loaded or reached, or if two have the same entity type. Never
            contains a URL.
        ExtraMissing: If a table is named and SQLAlchemy is not installed.
    """
    found = [source for text in named for source in _sources(text)]
    return checked_sources(found)


def _sources(text: str) -> Iterable[SnapshotSource]:
    if _PYTHON.fullmatch(text):
        return _loaded(text)
    entity_type, equals, place = text.partition("=")
    url, hash_, table = place.rpartition("#")
    if not (entity_type and equals and url and hash_ and table):
        raise InvalidOption("--source", text.partition("=")[0], _SOURCE)
    return [_sql_source(entity_type, url, table)]


def _loaded(text: str) -> Sequence[SnapshotSource]:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # a console script does not search it by itself
    try:
        made: Any = EntryPoint(text, text, "").load()
        if callable(made) and not callable(getattr(made, "read", None)):
            made = made()
        return checked_sources(made)
    except Exception as error:
        raise InvalidOption("--source", text, f"one that can be loaded ({_why(error)})") from error


def _sql_source(entity_type: str, url: str, name: str) -> SnapshotSource:
    try:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissing("--source", error.name or "SQLAlchemy", "sql") from None
    shown = f"{entity_type}=...#{name}"
    schema, _, table_name = name.rpartition(".")
    try:
        engine = sa.create_engine(SecretReference(url).value() if url.startswith(_REFERENCES) else url)
        table = sa.Table(table_name, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except PenstockError as error:
        raise InvalidOption("--source", shown, f"one whose URL is there: {error}") from None
    except sa.exc.NoSuchTableError:
        raise InvalidOption("--source", shown, "a table that the database has") from None
    except sa.exc.ArgumentError:  # its text contains the URL
        raise InvalidOption("--source", shown, "a URL of SQLAlchemy, such as 'sqlite:///shop.db'") from None
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        raise InvalidOption("--source", shown, f"a database that can be reached ({_why(error)})") from None
    keys = [column.name for column in table.primary_key]
    if not keys:
        right = "a table with a primary key; of others a SqlSource in a module names the columns"
        raise InvalidOption("--source", shown, right)
    return SqlSource(engine, table, entity_type=entity_type, key=keys)


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(getattr(error, 'orig', None) or error).split())}"


_Kept = TokenFile | Policy | ServerCertificate
_DEFAULT_PORT: Final = 8090
_TURN: Final = 0.0002  # seconds


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.directory()
    parser.flag("--own", "open it for writing, instead of following its writer")
    parser.readers("a log that --own makes")
    parser.flag(
        "--state", "with --own: keep the newest body of each entity, and give it to clients that ask for it"
    )
    parser.each(
        "--source",
        "SOURCE",
        "where rows come from for clients that ask for the state: MODULE:NAME of a source in Python, or TYPE=URL#TABLE of a table",
    )
    parser.flag("--writable", "with --own: let every authenticated client append")
    parser.each(
        "--slots",
        "PATTERN",
        "with --own: let clients make and use the slots of these names, such as 'stock*'",
    )
    parser.each(
        "--groups",
        "PATTERN",
        "with --own: let clients make and use the groups of these names, such as 'pick*'",
    )
    parser.flag(
        "--follow-name", "when what DIR names is replaced, renamed or removed, serve what comes to that name"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=number(0, 65535),
        default=_DEFAULT_PORT,
        help="port to listen on, 0 for a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--resp",
        type=number(0, 65535),
        metavar="PORT",
        help="speak the Redis protocol too, on this port, 0 for a free one",
    )
    parser.each("--origin", "URL", "web page that may connect and read")
    parser.each(
        "--allow-host", "NAME", "name by which it may be asked, beside those of this machine, * for all"
    )
    parser.value(
        "--token-file",
        "FILE",
        "accept clients with one of its tokens, one name:token per line; reread on SIGHUP",
    )
    parser.flag(
        "--access-log", "write a line for each HTTP request, and for each WebSocket when it has ended"
    )
    parser.flag("--otel", "tell metrics and spans by OpenTelemetry (run it by opentelemetry-instrument)")
    parser.value(
        "--policy",
        "FILE",
        "authenticate clients and grant permissions by this file (TOML); reread when it changes, and on SIGHUP",
    )
    what = "longest time since the newest commit of each log with which the server is healthy (default: any)"
    parser.value("--commit-age", "SECONDS", what, type=_age)
    parser.value("--sinks", "FILE", "with --own: run the sinks that this file declares (TOML), of this log")
    parser.value("--tls-cert", "FILE", "speak TLS with this certificate (PEM); read again on SIGHUP")
    parser.value("--tls-key", "FILE", "its private key, if it is in a file of its own")
    parser.value(
        "--tls-client-ca",
        "FILE",
        "accept clients with a certificate of one of these authorities (mutual TLS)",
    )
    parser.flag("--insecure", "listen beyond this machine although clients need no token")
    add_lens(parser)


def _age(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a number of seconds above 0")
    return value


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    """Threads of this process take turns more often than by default.

    An event loop that has sent something waits behind a busy thread until that thread has had its turn: 5 ms by default for
    each of a thousand sockets, if clients keep another port or the threads of snapshots and appends busy.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run(chosen: argparse.Namespace) -> int:
    """Serves until SIGINT (returns 130) or SIGTERM (returns 0); then closes the connections and the log."""
    lines.begin(chosen, always=True)
    raise_limit()
    finished = threading.Event()
    tls, policy = _tls(chosen), _policy(chosen)
    grant = _grant(chosen) if policy is None else policy.authorise
    authenticate = _authenticator(chosen) if policy is None else policy
    checked_origins(chosen.origin)  # before the log is opened

    def finish(_signal: int, _frame: FrameType | None) -> None:
        finished.set()

    failed: list[str] = []

    def fail(name: str) -> None:
        failed.append(name)
        finished.set()

    with (
        _switching_often(),
        _opened(chosen) as served,
        _sinks(chosen, served, fail) as sinks,
        start(
            served,
            chosen.host,
            chosen.port,
            limits=Limits() if chosen.commit_age is None else Limits(commit_age=chosen.commit_age),
            origins=chosen.origin,
            hosts=chosen.allow_host,
            authorise=grant,
            authenticate=authenticate,
            tls=tls,
        ) as server,
        contextlib.nullcontext()
        if chosen.resp is None
        else serve_resp(
            served,
            chosen.host,
            chosen.resp,
            authenticate=authenticate,
            authorise=grant,
            tls=tls,
            beside=server,
        ) as redis,
    ):
        if chosen.otel:
            _observe(server)
        if sinks is not None:
            running, endpoint = sinks
            server.application.sinks = lambda: {running.log_name: running.told()}
            server.application.mount("sinks", endpoint)
        before = signal.signal(signal.SIGTERM, finish)
        kept = [one for one in (authenticate, tls) if isinstance(one, _Kept)]
        hung_up = signal.signal(signal.SIGHUP, lambda *_: _reload(kept)) if kept else None
        try:
            how = "as its owner" if chosen.own else "read-only"
            print(
                f"serving {_named(served)} {how} at {server.url}, health at {server.health_url}", flush=True
            )
            if redis is not None:
                server.application.redis_port = redis.figures
                print(f"serving the Redis protocol at {redis.url}", flush=True)
            wait_for(finished)
        finally:
            signal.signal(signal.SIGTERM, before)
            if kept:
                signal.signal(signal.SIGHUP, hung_up)
    if failed:
        raise SinkError(
            f"sink {failed[0]!r} has failed, and on_failure = 'stop' ends the process; see the log"
        )
    return 0


def _grant(chosen: argparse.Namespace) -> Grant:
    """The grant of every client.

    Raises:
        InvalidOption: If an option lets clients write or consume, but ``--own`` is not given.
    """
    if chosen.writable and not chosen.own:
        raise InvalidOption("--writable", True, "given with --own: a follower cannot write")
    for option, patterns in (("--slots", chosen.slots), ("--groups", chosen.groups)):
        if patterns and not chosen.own:
            raise InvalidOption(
                option, patterns, "given with --own: a follower keeps no places for consumers"
            )
        for pattern in patterns:
            right = wrong_pattern(pattern)
            if right is not None:
                raise InvalidOption(option, pattern, right)
    view = view_of(chosen)
    actions = EVERYBODY.actions | ({LogAction.WRITE} if chosen.writable else set())
    actions |= {LogAction.CONSUME} if chosen.slots or chosen.groups else set()
    return Grant(actions, view if view.lenses else None, slots=chosen.slots, groups=chosen.groups)


def _policy(chosen: argparse.Namespace) -> Policy | None:
    """The policy of ``--policy``, which authenticates clients and grants permissions; None without it.

    Raises:
        InvalidOption: If the file is invalid, or another option conflicts with it.
    """
    if chosen.policy is None:
        return None
    for name in ("token_file", "field", "mask", "writable", "slots", "groups"):
        if getattr(chosen, name):
            option = "--" + name.replace("_", "-")
            raise InvalidOption(option, getattr(chosen, name), "left out with --policy, whose file says that")
    return Policy(chosen.policy)


def _authenticator(chosen: argparse.Namespace) -> TokenFile | PeerCertificates | None:
    """The authenticator; None, for every client, only on a loopback address or with ``--insecure``.

    Raises:
        InvalidOption: If another address is to be open to every client, or a file is invalid.
    """
    if chosen.token_file is not None:
        return TokenFile(chosen.token_file)
    if chosen.tls_client_ca is not None:
        return PeerCertificates()
    if not is_loopback(chosen.host) and not chosen.insecure:
        raise InvalidOption(
            "--host",
            chosen.host,
            "an address of this machine alone, such as 127.0.0.1, unless --policy, --token-file or --tls-client-ca authenticates clients; "
            "--insecure opens every log to every client that reaches the port",
        )
    return None


def _observe(server: Server) -> None:
    try:
        from transports.telemetry.otel import observe  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("--otel", error.name or "opentelemetry", "otel") from None
    observe(server)


def _tls(chosen: argparse.Namespace) -> ServerCertificate | None:
    """The certificate of the server; None without TLS.

    Raises:
        InvalidOption: If a file is invalid, or an option needs ``--tls-cert``.
    """
    if chosen.tls_cert is not None:
        return ServerCertificate(chosen.tls_cert, chosen.tls_key, client_ca=chosen.tls_client_ca)
    for name, value in (("--tls-key", chosen.tls_key), ("--tls-client-ca", chosen.tls_client_ca)):
        if value is not None:
            raise InvalidOption(name, value, "left out without --tls-cert")
    return None


def _reload(kept: Sequence[_Kept]) -> None:
    for one in kept:
        try:
            one.reload()
        except InvalidOption as error:
            print(f"penstock: {error}; the previous version stays in force", file=sys.stderr, flush=True)
        else:
            names = {TokenFile: "the tokens of {} clients", Policy: "the policy for {} principals"}
            what = names.get(type(one), "the certificate")
            print(
                f"read {what.format(0 if isinstance(one, ServerCertificate) else len(one))} again", flush=True
            )


def _opened(chosen: argparse.Namespace) -> ChangeLog | ChangeStore | FollowedName:
    check_directory(chosen.directory)
    if chosen.state and not chosen.own:
        raise InvalidOption("--state", True, "given with --own: a follower keeps no state")
    if chosen.readers and not chosen.own:
        raise InvalidOption("--readers", chosen.readers, "given with --own: a follower makes no log")
    # One that serves as the owner is the program that says so if a directory is for others to read; other commands are not.
    options: dict[str, Any] = {"readers": "owner", **readers_of(chosen)} if chosen.own else {}
    if chosen.state or (chosen.own and chosen.sinks is not None and read_sinks(chosen.sinks).state):
        options["state"] = True
    if chosen.source and (chosen.follow_name or is_store(chosen.directory)):
        right = "given where DIR is one log, as the sources are of that; without --follow-name"
        raise InvalidOption("--source", chosen.source, right)
    if chosen.follow_name:
        if chosen.own:
            raise InvalidOption("--follow-name", True, "left out with --own: an owner keeps what it has open")
        return FollowedName(chosen.directory)
    if is_store(chosen.directory):
        return ChangeStore.open(chosen.directory, read_only=not chosen.own, borrowed=True, **options)
    sources = sources_of(chosen.source) if chosen.source else ()
    log = ChangeLog.open(chosen.directory, read_only=not chosen.own, borrowed=True, **options)
    log.snapshots_from(*sources)
    return log


def _sinks(
    chosen: argparse.Namespace,
    served: ChangeLog | ChangeStore | FollowedName,
    fail: Callable[[str], object],
) -> contextlib.AbstractContextManager[tuple[LogSinks, Callable[..., SinksEndpoint]] | None]:
    """The sinks that run beside the server; None without ``--sinks``.

    Raises:
        InvalidOption: If another process owns the log.
    """
    if chosen.sinks is None:
        return contextlib.nullcontext()
    if isinstance(served, FollowedName) or not chosen.own:
        raise InvalidOption("--sinks", chosen.sinks, "given with --own: the places of sinks are the owner's")
    return run_beside(chosen.sinks, chosen.directory, served, fail)


def _named(served: ChangeLog | ChangeStore | FollowedName) -> str:
    """Names what is served, for the first line of output."""
    if isinstance(served, ChangeLog | FollowedName):
        return served.name
    logs = ", ".join(served) or "no logs yet"
    return f"the store {served.path.resolve().name} ({logs})"
