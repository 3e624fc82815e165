"""Deletes or sets keys of Redis or Valkey when entities change (the extra ``redis``)."""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import redis

from publishers.errors import InvalidOption
from publishers.model.change import Change
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from publishers.options import check_whole
from publishers.views.view import Images
from transports.sinks.bounded import ANSWER_BYTES, AnswerBound
from transports.sinks.cache_connection import bounded_client
from transports.sinks.errors import TargetRefused, TargetUnavailable
from transports.sinks.retry import check_seconds
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import (
    EntityEffect,
    EntitySpace,
    ItemResult,
    ItemVerdict,
    SinkBatch,
    SinkContext,
    effect_of,
)
from transports.sinks.tls import TargetTls

__all__ = ["CacheSink"]

_URLS: Final = "redis://HOST:PORT/DB, rediss://..., unix://PATH, or a reference to one: env:NAME or file:PATH"
_TEMPLATES: Final = (
    "a text with {key}, and with {entity_type} if the sink has changes of several entity types"
)
# What a server says is the class of an error for the codes that redis-py knows, which differ by its version, else its text.
_LATER: Final = (
    redis.exceptions.BusyLoadingError, redis.exceptions.ReadOnlyError, redis.exceptions.OutOfMemoryError,
    redis.exceptions.ClusterDownError, redis.exceptions.TryAgainError, redis.exceptions.ExecAbortError,
)  # fmt: skip
_SAID_LATER: Final = (
    "OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN",
    "Wrong number of response items",  # so redis-py calls an answer of another length
)  # fmt: skip
_REFUSED: Final = (
    redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError
)  # fmt: skip
_SAID_REFUSED: Final = ("NOAUTH", "NOPERM", "WRONGPASS")
_PLACES: Final = b"penstock:place:"  # the beginning of the names of the places of all sinks
_SCANNED: Final = 500  # keys a step, and a command that deletes them
_ANNOTATED: Final = "caused error: "  # redis-py puts the command before it


class CacheSink:
    """Deletes the key of each changed entity, or sets it to the body.

    A change that arrives twice has the effect of one. TRUNCATE finds all keys of the template by ``SCAN``, and deletes them as they are
    found, before its batch. With ``values`` each batch is one transaction that also sets ``penstock:place:LOG_ID:SINK`` to the position behind it, so that no value goes back to an older
    one after a crash; the sink then takes one batch at a time.

    Args:
        url: ``redis://HOST:PORT/DB``, or a reference to it: ``env:NAME`` or ``file:PATH``.
        template: The template of keys: a text with ``{key}``, and with ``{entity_type}`` unless all changes are of one entity type.
        values: Whether to set keys to the body; otherwise they are deleted, and the next reader fills the cache.
        ttl: Seconds after which a set key expires, from 1; None: it does not.
        timeout: Seconds in which the server must have answered a whole batch, or a step of a scan, with 4 MiB at most; from 0.05 to
            600.
        tls: TLS to the server of a ``rediss://`` URL; without ``server_name``. None for what the URL says.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    keeps_entities: ClassVar[bool] = True
    images: ClassVar[Images | None] = Images.AFTER

    def __init__(
        self,
        url: str,
        template: str = "{entity_type}:{key}",
        *,
        values: bool = False,
        ttl: int | None = None,
        timeout: float = 15.0,
        tls: TargetTls | None = None,
    ) -> None:
        kept = isinstance(url, str) and url.startswith(("env:", "file:"))
        self._kept_url = SecretReference(url) if kept else None
        self._url = None if kept else _checked(url)
        _check_template(template)
        check_seconds("timeout", timeout, 0.05, 600.0)
        if ttl is not None:
            check_whole("ttl", ttl, "a whole number of seconds from 1, or None", 1)
        if tls is not None and tls.server_name is not None:
            raise InvalidOption("server_name", tls.server_name, "left out: it is that of the address")
        self._template, self._values, self._ttl, self._tls = template, values, ttl, tls
        self.stores_position = values  # type: ignore[misc]  # deleting a key twice needs no position
        self.parallel: bool = not values
        self._timeout = float(timeout)
        self._bound = AnswerBound(self._timeout, ANSWER_BYTES)
        self._client: Any = None
        self._context: SinkContext | None = None

    def __repr__(self) -> str:
        return f"<CacheSink {self._shown}>"

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`. Without ``values`` the first batch connects.

        Raises:
            TargetOfOtherHistory: If the stored position is not of this log's history.
            HistoryPruned: If the changes behind it are no longer kept.
        """
        self._context = context
        if self._kept_url is not None:
            try:
                self._url = _checked(self._kept_url.value())
            except InvalidOption as error:
                raise TargetRefused(f"{self._kept_url}: {error}") from None
        assert self._url is not None
        options: dict[str, Any] = {}
        if self._tls is not None:
            if not self._url.startswith("rediss://"):
                raise TargetRefused(f"{self._shown} speaks no TLS; rediss:// does")
            self._tls.warn(context.name, self._shown)
            options = self._tls.for_redis()
        self.close()  # an opening that failed leaves the client by which `alive` asks
        self._client = bounded_client(
            self._url,
            self._bound,
            self._timeout,
            client_name=f"penstock-{context.name}",
            max_connections=context.in_flight,
            **options,
        )
        if not self._values:
            return None
        kept = self._asked(lambda: self._client.get(self._place))
        if kept is None:
            return None
        if not isinstance(kept, str | bytes):
            raise self._nonsense(kept)
        text = kept if isinstance(kept, str) else kept.decode("utf-8", "replace")
        return context.place_of(text, f"{self._place} of {self._shown}", "the keys of the sink")

    def write(self, batch: SinkBatch) -> Sequence[ItemResult]:
        """See `Sink.write`."""
        effects: dict[
            bytes, tuple[int, Change | None]
        ] = {}  # the last one of each key; no change: its key goes
        refused: list[ItemResult] = []
        for place, change in enumerate(batch.changes):
            effect = effect_of(change)
            if effect is EntityEffect.CLEAR:
                if self.space(change.entity_type or "").everything:
                    refused.append(ItemResult(place, ItemVerdict.REJECT, self._boundless))
                    continue
                before = [key for key, (one, _) in effects.items() if _same_type(batch.changes[one], change)]
                effects |= dict.fromkeys(before, (place, None))
                self._clear(change.entity_type or "")
            elif effect is not EntityEffect.NONE and change.key is not None:
                put = effect is EntityEffect.PUT and self._values and change.body_bytes is not None
                key = self._key(change.entity_type, change.key)
                if key.startswith(_PLACES):
                    refused.append(ItemResult(place, ItemVerdict.REJECT, f"{key.decode('utf-8', 'replace')} is the name of a place of a sink"))  # fmt: skip
                    continue
                effects[key] = place, change if put else None
        # One command for all values: a transaction answers each of its commands twice.
        at_once = self._ttl is None and any(kept is not None for _, kept in effects.values())
        answers = self._sent(effects, batch.next, at_once=at_once)
        if at_once and _rejected(answers[0][1]):
            answers = self._sent(effects, batch.next, at_once=False)  # which tells them apart
        last = answers.pop()[1] if self._values else None
        results = list(self._judged(answers))
        if results and self._values:  # the position must not pass what was not accepted
            self.move(batch.changes[min(one.place for one in results)].position)
        elif self._values:
            self._check_set(last)
        return [*refused, *results]

    def _sent(
        self, effects: Mapping[bytes, tuple[int, Change | None]], place: Position, *, at_once: bool
    ) -> list[tuple[int, Any]]:
        """Sends what becomes of keys; returns the answer for each change, and behind them that for the position, if there is one.

        Args:
            effects: The changes by key, with their places in the batch; None for a key that goes.
            place: The position behind the batch.
            at_once: Whether all values are set by one command.
        """
        pipeline = self._client.pipeline(transaction=self._values)
        places: list[list[int]] = []
        gone: dict[int, list[bytes]] = {}
        puts: dict[bytes, bytes | None] = {}
        for key, (number, kept) in effects.items():
            if kept is None:
                gone.setdefault(number, []).append(key)
                continue
            puts[key] = kept.body_bytes
            if not at_once:
                pipeline.set(key, kept.body_bytes, ex=self._ttl)
                places.append([number])
        if at_once and puts:
            pipeline.mset(puts)
            places.append([effects[key][0] for key in puts])
        for number, keys in gone.items():
            for first in range(0, len(keys), _SCANNED):
                pipeline.unlink(*keys[first : first + _SCANNED])
                places.append([number])
        if self._values:
            pipeline.set(self._place, self._opened.token(place), ex=None)
            places.append([-1])
        answers = self._asked(lambda: pipeline.execute(raise_on_error=False))
        return [(number, answer) for one, answer in zip(places, answers, strict=True) for number in one]

    def space(self, entity_type: str) -> EntitySpace:
        """See `Sink`."""
        front, _, rest = self._template.partition("{key}")
        begin, end = (
            part.replace("{entity_type}", entity_type) for part in (front, rest.rpartition("{key}")[2])
        )
        return EntitySpace("keys", begin, end)

    def flush(self) -> None:
        """Does nothing: the durability of a cache is its own concern."""

    def move(self, position: Position) -> None:
        """See `Sink.move`."""
        if self._values:
            token = self._opened.token(position)
            self._check_set(self._asked(lambda: self._client.set(self._place, token, ex=None)))

    def close(self) -> None:
        """See `Sink.close`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def alive(self) -> bool:
        """See `Sink.alive`."""
        try:
            return bool(self._asked(self._client.ping))
        except (TargetUnavailable, TargetRefused):
            return False

    # Keys.

    @property
    def _shown(self) -> str:
        if self._kept_url is not None:
            return str(self._kept_url)
        parts = urlsplit(self._url or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def _boundless(self) -> str:
        return f"the template {self._template} is that of any key, so a TRUNCATE would delete all keys of the database"

    def _key(self, entity_type: str | None, key: str) -> bytes:
        made = self._template.format(entity_type=entity_type or "", key=key)
        return made.encode("utf-8", "surrogateescape")

    def _clear(self, entity_type: str) -> None:
        """Deletes all present keys of an entity type."""
        pattern = _escaped(self._template).replace("{key}", "*")
        pattern = pattern.replace("{entity_type}", _escaped(entity_type))
        match, cursor = pattern.encode("utf-8", "surrogateescape"), 0
        while True:
            cursor, keys = self._asked(lambda: self._client.scan(cursor, match=match, count=_SCANNED))  # noqa: B023 - called at once
            if not isinstance(keys, list):
                raise self._nonsense(keys)
            gone = [key for key in keys if not key.startswith(_PLACES if isinstance(key, bytes) else _PLACES.decode())]  # fmt: skip
            if gone:
                answer = self._asked(lambda: self._client.unlink(*gone))  # noqa: B023 - called at once
                if not isinstance(answer, int):
                    raise self._nonsense(answer)
            if cursor == 0:
                return
            if self._opened.interrupted():  # a server may say for ever that there is more
                raise TargetUnavailable(f"{self._shown}: interrupted while its keys were looked through")

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None
        return self._context

    @property
    def _place(self) -> str:
        return f"{_PLACES.decode()}{self._opened.log_id}:{self._opened.name}"

    # Answers.

    def _judged(self, answers: Any) -> Iterator[ItemResult]:
        results: dict[int, ItemResult] = {}
        for place, answer in answers:
            if not isinstance(answer, Exception):
                if answer is False or not isinstance(answer, int):  # True: it was set; else how many went
                    raise self._nonsense(answer)
                continue
            if isinstance(answer, redis.ConnectionError) or _refused(answer):
                raise self._failure(answer)
            verdict = ItemVerdict.REJECT if _rejected(answer) else ItemVerdict.RETRY
            results[place] = ItemResult(place, verdict, str(answer))
        yield from results.values()

    def _check_set(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            raise self._failure(answer)
        if answer is not True:
            raise self._nonsense(answer)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        self._bound.begin()
        try:
            return ask()
        except redis.RedisError as error:
            raise self._failure(error) from None
        except Exception as error:  # noqa: BLE001 - redis-py raises anything for an answer that is none
            raise TargetUnavailable(
                f"{self._shown}: the answer is none of a cache: {type(error).__name__}: {error}"
            ) from None

    def _nonsense(self, answer: Any) -> Exception:
        return TargetUnavailable(
            f"{self._shown}: the answer does not say whether it was done: {str(answer)[:100]!r}"
        )

    def _failure(self, error: Exception) -> Exception:
        why = f"{self._shown}: {type(error).__name__}: {_said(error)}"
        judged = isinstance(error, redis.ResponseError | redis.DataError) and not _later(error)
        return TargetRefused(why) if judged or _refused(error) else TargetUnavailable(why)


def _same_type(one: Change, other: Change) -> bool:
    return one.entity_type == other.entity_type


def _later(error: Exception) -> bool:
    return isinstance(error, _LATER) or _said(error).startswith(_SAID_LATER)


def _rejected(answer: object) -> bool:
    """Whether an answer says that the server will never take what it was asked to."""
    passing = isinstance(answer, Exception) and (_later(answer) or _refused(answer))
    return isinstance(answer, Exception) and not passing and not isinstance(answer, redis.ConnectionError)


def _refused(error: Exception) -> bool:
    return isinstance(error, _REFUSED) or _said(error).startswith(_SAID_REFUSED)


def _said(error: Exception) -> str:
    """Returns what the server has said."""
    return str(error).rpartition(_ANNOTATED)[2]


def _checked(url: object) -> str:
    if not isinstance(url, str) or urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise InvalidOption("url", HIDDEN, _URLS)
    return url


def _check_template(template: Any) -> None:
    try:
        parts = list(string.Formatter().parse(template))
    except (ValueError, TypeError):
        raise InvalidOption("template", template, _TEMPLATES) from None
    names = [name for _, name, _, _ in parts if name is not None]
    plain = all(not spec and not conversion for _, _, spec, conversion in parts)
    braces = any("{" in text or "}" in text for text, _, _, _ in parts)
    if "key" not in names or not set(names) <= {"key", "entity_type"} or not plain or braces:
        raise InvalidOption("template", template, _TEMPLATES)


def _escaped(text: str) -> str:
    """Escapes the wildcards of a pattern."""
    return "".join(f"\\{one}" if one in "*?[]\\^" else one for one in text)
