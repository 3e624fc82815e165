"""Start positions on the wire: one vocabulary for all transports, the same as in process.

========================  ==================================================  ===================================
in process                JSON: ``start`` of a subscription                   text: ``penstock tail --since``
========================  ==================================================  ===================================
``"latest"``              ``"latest"``                                        ``latest``
``"earliest"``            ``"earliest"``                                      ``earliest``
a version                 ``{"version": 5}``                                  ``5``
``Position(5, 2)``        ``{"version": 5, "index": 2}``
a time                    ``{"time": "2026-03-01T12:00:00Z"}``                ``2026-03-01T12:00:00Z``
the id of a transaction   ``{"transaction": "0b8c6f3e-..."}``                 ``0b8c6f3e-...``
the text of a position    no ``start``, but ``since``                         the text
``"state"``               ``"state"``                                         no text
========================  ==================================================  ===================================
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec

from publishers.commits.group_commit import Commit
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned, InvalidOption, PenstockError, PositionMalformed
from publishers.fanout.gap import OnGap
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.model.position import Position, PositionToken, Start
from publishers.snapshots import SnapshotCursor, SnapshotMode
from publishers.views.view import View
from transports.codec.fields import whole
from transports.errors import InvalidRequest

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "VERSION_MAX",
    "asks_for_state",
    "checked_snapshot",
    "explained",
    "feed_of",
    "kept_place",
    "moment_of",
    "place_of",
    "reads_disk",
    "start_json",
    "start_of",
    "start_of_text",
]

VERSION_MAX: Final = 2**53 - 1
"""The greatest version that every JSON parser represents exactly."""

_INDEX_MAX: Final = 2**31 - 1
_TIME: Final = "a time of RFC 3339 with its offset, such as 2026-03-01T12:00:00Z"
_TRANSACTION: Final = "the id of a transaction: a UUID, such as the TRANSACTION event tells it"
_FORMS: Final = (
    'one of: "latest", "earliest", "state", {"version": 1}, {"time": "..."}, {"transaction": "..."}'
)
_WORDS: Final = (
    "latest, earliest, a version, a time, the id of a transaction, or a cursor such as events carry"
)


def start_of(value: object) -> Start | Position | datetime | UUID | Literal["state"]:
    """Parses the ``start`` of a subscription; None means the latest position.

    Raises:
        InvalidRequest: If the value is invalid; names the path, such as ``start`` or ``start.time``.
    """
    if value is None:
        return Start.LATEST
    if isinstance(value, str) and value in ("latest", "earliest"):
        return Start(value)
    if value == "state":
        return "state"
    if not isinstance(value, Mapping):
        raise InvalidRequest("start", value, _FORMS)
    match sorted(value):
        case ["version"] | ["index", "version"]:
            version = whole("start.version", value["version"], 1, VERSION_MAX)
            return Position(version, whole("start.index", value.get("index", 0), 0, _INDEX_MAX))
        case ["time"]:
            moment = moment_of(value["time"])
            if moment is None:
                raise InvalidRequest("start.time", value["time"], _TIME)
            return moment
        case ["transaction"]:
            name = _name_of(value["transaction"])
            if name is None:
                raise InvalidRequest("start.transaction", value["transaction"], _TRANSACTION)
            return name
        case _:
            raise InvalidRequest("start", value, _FORMS)


def start_json(since: Since) -> dict[str, Any]:
    """Returns the ``since`` or ``start`` field for a start position as given in process.

    Raises:
        InvalidOption: If the value is not a start position.
    """
    match since:
        case None:
            return {}
        case PositionToken():
            return {"since": str(since)}
        case "latest" | "earliest" | "state":
            return {"start": str(since)}
        case str():
            return {"since": since}
        case Position():
            return {"start": {"version": since.version, "index": since.index}}
        case Commit():
            return {"start": {"version": since.version}}
        case UUID():
            return {"start": {"transaction": str(since)}}
        case datetime() if since.utcoffset() is not None:
            return {"start": {"time": since.isoformat()}}
        case datetime():
            raise InvalidOption("since", since, "a time with a time zone, such as datetime.now(UTC)")
        case bool():
            pass
        case int():
            return {"start": {"version": since}}
    raise InvalidOption("since", since, "a position, its text, a version, a time or a transaction")


def start_of_text(name: str, text: str) -> Since:
    """Parses a start position that a user typed.

    Args:
        name: The name of the option, for the error.
        text: The text.

    Raises:
        InvalidOption: If the text is not a start position.
    """
    if text in ("latest", "earliest"):
        return Start(text)
    if text.isascii() and text.isdigit() and 1 <= len(text) <= 15:
        return int(text)
    moment = moment_of(text)
    if moment is not None:
        return moment
    transaction = _name_of(text)
    if transaction is not None:
        return transaction
    try:
        return PositionToken.parse(text)
    except PositionMalformed:
        raise InvalidOption(name, text, _WORDS) from None


def asks_for_state(since: Since) -> bool:
    """Whether rows of the current state come first: for ``"state"``, and for a cursor inside those rows."""
    return since == "state" or SnapshotCursor.is_text(since)


def checked_snapshot(mode: SnapshotMode | None, *, stated: bool, jump: bool) -> SnapshotMode | None:
    """Checks the ``snapshot`` mode of a subscription.

    Raises:
        InvalidRequest: If the mode does not fit the start position, or conflicts with ``onGap: jump``.
    """
    if mode == ("never" if stated else "initial_only"):
        raise InvalidRequest(
            "snapshot", mode, "initial, initial_only or on_gap with the state; else never, initial or on_gap"
        )
    if mode == "on_gap" and jump:
        raise InvalidRequest("onGap", "jump", "fail where snapshot is on_gap: rows come in place of a gap")
    return mode


def reads_disk(since: Since) -> bool:
    """Whether finding the start position reads the disk, which an event loop must not do."""
    return isinstance(since, (datetime, UUID))


def kept_place(log: "ChangeLog", place: Since, *, jump: bool) -> Since:
    """Resolves a start position: the text of a cursor, or the result of ``start_of``.

    Raises:
        PositionError: If it does not belong to this log; also if its history is no longer kept, unless gaps are jumped over.
    """
    if jump or place is None or isinstance(place, Start | datetime | UUID):
        return place
    position = place if isinstance(place, Position) else log.position_of(str(place))
    # The feed checks this again after registration. The check here makes the error the first answer.
    if position < log.oldest:
        raise HistoryPruned(log.oldest)
    return position


def explained(error: PenstockError, since: Since) -> PenstockError:
    """Returns an error about the start position under the name that the client gave."""
    if isinstance(error, InvalidOption) and error.parameter == "since" and isinstance(since, UUID):
        return InvalidRequest("start.transaction", str(since), "the id of a transaction that is kept")
    return error


def feed_of(
    log: "ChangeLog",
    criteria: Criteria | tuple[()],
    since: Since,
    until: int | None,
    view: View,
    *,
    whole: bool,
    jump: bool,
    prepared: bool,
    snapshot: SnapshotMode | None = None,
) -> ChangeFeed:
    """Makes the feed of a client's subscription; may read the disk, see ``reads_disk``.

    Args:
        log: The log.
        criteria: The criteria; an empty tuple if the client gave an empty list.
        since: The start position.
        until: The last version; None for no end.
        view: The view of the changes.
        whole: Whether to send a transaction from its beginning if the start lies inside it.
        jump: Whether to resume behind a gap.
        prepared: Whether to compile the criteria here.
        snapshot: When rows are delivered.

    Raises:
        PenstockError: If the feed cannot be made.
    """
    gaps: OnGap = "jump" if jump else "fail"
    try:
        feed = log.changes(
            criteria, since=since, until=until, view=view, whole=whole, on_gap=gaps, snapshot=snapshot
        )
        if prepared:
            feed.prepare()
        return feed
    except PenstockError as error:
        raise explained(error, since) from None


def place_of(since: str | None, start: object) -> Any:
    """The place in a log that a message names, by ``since`` or by ``start``; the end of the log if by neither.

    Raises:
        InvalidRequest: If it names none, or two.
        PositionMalformed: If ``since`` is no cursor.
    """
    if since is None:
        found = start_of(start)
        if found == "state":
            raise InvalidRequest("start", found, "a place in the log")
        return found
    if start is not None:
        raise InvalidRequest("start", start, "left out where since is given")
    return PositionToken.parse(since)


def moment_of(text: object) -> datetime | None:
    """Parses a time of RFC 3339; None if it is malformed or has no offset."""
    try:
        moment = msgspec.convert(text, datetime) if isinstance(text, str) else None
    except msgspec.ValidationError:
        return None
    return moment if moment is not None and moment.utcoffset() is not None else None


def _name_of(text: object) -> UUID | None:
    try:
        name = UUID(text) if isinstance(text, str) and len(text) == 36 else None
    except ValueError:
        return None
    return name if name is not None and str(name) == str(text).lower() else None
