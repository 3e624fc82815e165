"""Keeps entities as documents of OpenSearch, by bulk requests with external versions (the extra ``search``)."""

import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec
import opensearchpy
import urllib3

from publishers.errors import InvalidOption
from publishers.model.change import Change
from publishers.model.errors import HIDDEN
from publishers.model.position import Position
from publishers.views.view import Images
from transports.sinks.errors import TargetRefused, TargetUnavailable, TooLargeForTarget
from transports.sinks.retry import check_seconds
from transports.sinks.search_connection import BoundedConnection
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import (
    EntityEffect,
    EntitySpace,
    ItemResult,
    ItemVerdict,
    SinkBatch,
    SinkContext,
    SinkGap,
    Unfit,
    effect_of,
)
from transports.sinks.tls import TargetTls

__all__ = ["SearchSink"]

_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,254}")
_INDICES: Final = 2**20  # positions of one version that a document's version can encode
_VERSIONS: Final = 2**43
_KEY_BYTES: Final = 512
_GAPS: Final = "penstock-gaps"  # in place of an entity type
_PLACES: Final = "penstock-places"  # likewise
_LATER: Final = frozenset({408, 429, 502, 503, 504})


class SearchSink:
    """Keeps the newest state of each entity as a document, whose id is the key.

    Documents have external versions (``version_type=external``), made of the position: a repeated or late write changes nothing. A gap
    from while the sink was off becomes a document of the index that ``{entity_type}`` makes of ``penstock-gaps``, or of
    ``INDEX-penstock-gaps`` without it. A document of ``penstock-places``, named likewise, has the newest position that was written, so
    that the sink refuses a log that lacks the history before it. The engine forgets deletions after ``index.gc_deletes`` (60 s): set that above the longest
    outage of the target.

    Args:
        url: ``https://HOST:9200``, or a reference to it: ``env:NAME`` or ``file:PATH``.
        index: The index of an entity type: a text with ``{entity_type}``, or without for one entity type.
        timeout: Seconds in which the head of an answer must have come, and then the whole answer, of 16 MiB at most; from 0.05 to 600.
        tls: TLS to the engine; None for the authorities of the system.

    Raises:
        InvalidOption: If an argument is out of its bounds.
    """

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    marks_history: ClassVar[bool] = True
    keeps_entities: ClassVar[bool] = True
    images: ClassVar[Images | None] = Images.AFTER

    def __init__(
        self,
        url: str,
        index: str = "{entity_type}",
        *,
        timeout: float = 15.0,
        tls: TargetTls | None = None,
    ) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://", "env:", "file:")):
            raise InvalidOption(
                "url", HIDDEN, "https://HOST:9200, or a reference to it: env:NAME or file:PATH"
            )
        if not isinstance(index, str) or _INDEX.fullmatch(index.replace("{entity_type}", "x")) is None:
            raise InvalidOption("index", index, "small letters, digits, '_', '.' and '-', and {entity_type}")
        check_seconds("timeout", timeout, 0.05, 600.0)
        kept = url.startswith(("env:", "file:"))
        self._url = SecretReference(url if kept else f"plain:{url}")
        scheme, _, rest = url.partition("://")
        self._shown = url if kept else f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2])[0]}"
        self._index, self._timeout, self._tls = index, float(timeout), tls
        self._name = lru_cache(maxsize=1024)(self._checked_name)  # there are few entity types
        self._client: Any = None
        self._lock = threading.Lock()  # several threads write
        self._newest: Position | None = None

    def __repr__(self) -> str:
        return f"<SearchSink {self._shown} {self._index}>"

    def open(self, context: SinkContext) -> Position | None:
        """See `Sink.open`.

        Raises:
            HistoryPruned: If the changes behind that position are no longer kept, as after a return to an older copy of the indices.
            TargetOfOtherHistory: If the newest position that was written is not of this log's history.
        """
        self._context = context
        self._newest = None
        options: dict[str, Any] = {}
        if self._tls is not None:
            self._tls.warn(context.name, self)
            if self._tls.insecure_skip_verify:  # logged once above, so not again for each request
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            options["ssl_context"] = self._tls.named_context
        self.close()  # an opening that failed leaves the client by which `alive` asks
        self._client = opensearchpy.OpenSearch(
            self._url.value(),
            timeout=self._timeout,
            max_retries=0,
            pool_maxsize=context.in_flight,
            connection_class=BoundedConnection,
            **options,
        )
        place = self._asked(
            lambda: _place(
                self._client.get(index=self._beside(_PLACES), id=self._mark, params={"ignore": 404})
            )
        )
        if place is None:
            return None
        where = f"the document {self._mark} of {self._beside(_PLACES)}"
        self._newest = context.place_of(place, where, "the indices")
        return self._newest

    def write(self, batch: SinkBatch) -> Sequence[ItemResult]:
        """See `Sink.write`."""
        if batch.gap is not None:
            self._note(batch.gap)
        with self._lock:
            self._newest = max(self._newest or batch.next, batch.next, batch.changes[-1].position)
        results: list[ItemResult] = []
        lines: list[bytes] = []
        places: list[int] = []
        for place, change in enumerate(batch.changes):
            effect = effect_of(change)
            try:
                if effect is EntityEffect.CLEAR:
                    name, most = self._name(change.entity_type or ""), _version(change)
                    results += self._bulk(lines, places)
                    lines, places = [], []
                    self._clear(name, most)
                elif effect is not EntityEffect.NONE:
                    lines += self._action(change, effect)
                    places.append(place)
            except Unfit as error:
                results.append(ItemResult(place, ItemVerdict.REJECT, str(error)))
        return results + self._bulk(lines, places)

    def space(self, entity_type: str) -> EntitySpace:
        """See `Sink`."""
        return EntitySpace("index", self._named(entity_type))

    def flush(self) -> None:
        """Does nothing: what was answered is synced in the engine's translog."""

    def move(self, position: Position) -> None:
        """Notes that the documents have the history before a position."""
        with self._lock:
            self._newest = position
        self._asked(
            lambda: self._client.index(
                index=self._beside(_PLACES), id=self._mark, body=self._place_of(position)
            )
        )

    def close(self) -> None:
        """See `Sink.close`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def alive(self) -> bool:
        """See `Sink.alive`."""
        return bool(self._client.ping())

    # Requests.

    def _checked_name(self, entity_type: str) -> str:
        name = self._named(entity_type)
        if _INDEX.fullmatch(name) is None:
            raise Unfit(f"no index can be called {name!r}, after its entity type")
        if name in (self._gaps, self._beside(_PLACES)):
            raise Unfit(f"index {name} holds the gaps or places of the sink")
        return name

    def _named(self, entity_type: str) -> str:
        return self._index.replace("{entity_type}", entity_type.lower())

    @property
    def _gaps(self) -> str:
        return self._beside(_GAPS)

    def _action(self, change: Change, effect: EntityEffect) -> list[bytes]:
        try:
            key = (change.key or "").encode("utf-8")
        except UnicodeEncodeError:
            raise Unfit(f"its key is not UTF-8: {change.key!r}") from None
        if not key or len(key) > _KEY_BYTES:
            raise Unfit(f"its key has {len(key)} bytes; an id has 1 to {_KEY_BYTES}")
        name, version = self._name(change.entity_type or ""), _version(change)
        told = b'"_id":%b,"version":%d,"version_type":"external"}}' % (
            msgspec.json.encode(change.key),
            version,
        )
        if effect is EntityEffect.DELETE:
            return [b'{"delete":{"_index":"%b",%b' % (name.encode(), told)]
        if change.body_bytes is None:
            raise Unfit("the log does not hold the whole entity")
        # A newline ends a document; JSON may contain some outside of strings.
        return [
            b'{"index":{"_index":"%b",%b' % (name.encode(), told),
            change.body_bytes.replace(b"\n", b" ").replace(b"\r", b" "),
        ]

    def _bulk(self, lines: list[bytes], places: list[int]) -> list[ItemResult]:
        if not lines:
            return []
        newest = self._newest
        assert newest is not None
        # Before the documents: what they have must not be newer than what the place says.
        mark = {"index": {"_index": self._beside(_PLACES), "_id": self._mark}}
        marked = [msgspec.json.encode(mark), msgspec.json.encode(self._place_of(newest)), *lines]
        answer = self._asked(lambda: self._client.bulk(body=b"\n".join(marked) + b"\n"))
        found = []
        ((_, kept), *items) = self._items(answer, len(places) + 1)
        self._check_marked(kept)
        for place, (what, result) in zip(places, items, strict=True):
            status = result["status"]
            if status < 300 or status == 409 or (what == "delete" and status == 404):
                continue  # 409: the document has a newer version
            verdict = ItemVerdict.RETRY if status in _LATER else ItemVerdict.REJECT
            error = result.get("error") or {}
            found.append(
                ItemResult(place, verdict, f"{status} {error.get('type')}: {error.get('reason')}"[:300])
            )
        return found

    def _items(self, answer: Any, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Returns what an engine says of each of so many documents.

        Raises:
            TargetUnavailable: If it says nothing of some, or too much: so answers what stands in front of an engine.
        """
        try:
            found = [(what, result) for item in answer["items"] for what, result in item.items()]
            if len(found) == count and all(isinstance(result["status"], int) for _, result in found):
                return found
        except (TypeError, KeyError, AttributeError):
            pass
        shown = msgspec.json.encode(answer)[:100].decode("utf-8", "replace")
        raise TargetUnavailable(
            f"{self._shown}: the answer does not say what became of {count} documents: {shown}"
        )

    def _beside(self, what: str) -> str:
        """Returns the name of an index beside those of entities."""
        return self._index.replace("{entity_type}", what) if "{" in self._index else f"{self._index}-{what}"

    @property
    def _mark(self) -> str:
        """The id of the document of the place; a log that is made anew under the same name has the same."""
        return f"{self._context.log_name}:{self._context.name}"

    def _place_of(self, position: Position) -> dict[str, str]:
        context = self._context
        return {"log": context.log_name, "sink": context.name, "place": context.token(position)}

    def _check_marked(self, result: dict[str, Any]) -> None:
        """Raises if the engine has not taken the document of the place."""
        status = result["status"]
        if status >= 300:
            error = result.get("error") or {}
            why = (
                f"{self._shown}: {self._beside(_PLACES)}: {status} {error.get('type')}: {error.get('reason')}"
            )
            raise TargetUnavailable(why) if status in _LATER or status >= 500 else TargetRefused(why)

    def _note(self, gap: SinkGap) -> None:
        """Writes a document for a gap; the same document at each repetition."""
        context = self._context
        document = {"log": context.log_name, "log_id": context.log_id, "sink": context.name, **gap._asdict()}
        self._asked(
            lambda: self._client.index(index=self._gaps, id=f"{context.name}:{gap.first}", body=document)
        )

    def _clear(self, name: str, most: int) -> None:
        """Deletes the documents of lower positions; refreshes the index before, so that the search finds all of them."""
        if not self._asked(lambda: self._client.indices.exists(index=name)):
            return
        self._asked(lambda: self._client.indices.refresh(index=name))
        after: list[Any] = []
        while True:
            query: dict[str, Any] = {
                "size": 1000,
                "version": True,
                "_source": False,
                "sort": [{"_id": "asc"}],
            }
            query |= {"search_after": after} if after else {}
            hits = self._asked(
                lambda: [
                    (one["_id"], one["sort"])
                    for one in self._client.search(index=name, body=query)["hits"]["hits"]  # noqa: B023 - called at once
                ]
            )
            if not hits:
                return
            what = {"_index": name, "version": most, "version_type": "external"}
            lines = [msgspec.json.encode({"delete": {**what, "_id": key}}) for key, _ in hits]
            failed = self._bulk(lines, [0] * len(lines))
            if failed:
                raise TargetUnavailable(f"{name}: {failed[0].error}")
            after = hits[-1][1]
            if self._context.interrupted():  # an engine may say for ever that there is more
                raise TargetUnavailable(f"{self._shown}: interrupted while its documents were looked through")

    def _asked(self, ask: Any) -> Any:
        try:
            return ask()
        except opensearchpy.SerializationError as error:
            raise TargetUnavailable(f"{self._shown}: the answer is no JSON: {str(error)[:200]}") from None
        except opensearchpy.TransportError as error:
            unanswered = not isinstance(error.status_code, int)  # "N/A" and "TIMEOUT"
            status = "" if unanswered else f" {error.status_code}"
            why = f"{self._shown}: {type(error).__name__}{status}: {str(error.error)[:300]}"
            if error.status_code == 413:
                raise TooLargeForTarget(why) from None
            if unanswered or error.status_code in _LATER or error.status_code == 500:
                raise TargetUnavailable(why, overloaded=error.status_code in (429, 503)) from None
            raise TargetRefused(why) from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TargetUnavailable(
                f"{self._shown}: the answer is none of an engine: {type(error).__name__}: {error}"
            ) from None


def _place(answer: Any) -> str | None:
    """Returns the place in the answer to the question for its document."""
    if not answer.get("found"):
        return None
    place = answer["_source"]["place"]
    if not isinstance(place, str):
        raise TypeError(f"a place is a text, and not {place!r}")
    return place


def _version(change: Change) -> int:
    if change.index >= _INDICES or change.version >= _VERSIONS:
        raise Unfit(
            f"{change.position} is beyond what the version of a document can hold: 2^43 versions of 2^20 changes"
        )
    return change.version * _INDICES + change.index
