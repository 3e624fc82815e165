import re
import uuid
from pathlib import Path

import pytest

from flow.errors import IllegalRequestError, Lagged
from publishers.errors import (
    HistoryPruned,
    InvalidCriteria,
    InvalidOption,
    LogClosed,
    LogFailed,
    LogForked,
    LogGone,
    LogReplaced,
    NoSuchVersion,
    PositionAhead,
    PositionForeign,
    PositionForked,
    PositionMalformed,
    WalCorrupted,
)
from publishers.model.position import LogIdentity, Position
from transports.errors import CloseCode, ConsumerNotJoined, GoingAway, LogNotFound, SlotNotOpen, close_reason
from transports.problems import describe


def token(position):
    return f"token {position}"


@pytest.mark.parametrize(
    ("error", "code", "retryable", "data"),
    [
        (
            InvalidCriteria("criteria[0].keys", 7, "text"),
            "INVALID_CRITERIA",
            False,
            {"path": "criteria[0].keys"},
        ),
        (InvalidOption("until", -1, "a version"), "INVALID_REQUEST", False, {"path": "until"}),
        (LogNotFound("x", ["shop"]), "LOG_NOT_FOUND", False, {"path": "log"}),
        (SlotNotOpen("stock", "one"), "SLOT_NOT_OPEN", False, {"name": "stock", "opening": "one"}),
        (
            ConsumerNotJoined("pickers", "a", "one"),
            "CONSUMER_NOT_JOINED",
            False,
            {"name": "pickers", "consumer": "a", "opening": "one"},
        ),
        (LogClosed(Position(3, 1)), "LOG_CLOSED", True, {"cursor": "token 3:1"}),
        (LogClosed(), "LOG_CLOSED", True, {}),
        (NoSuchVersion(7, 3), "TRANSACTION_REMOVED", True, {"version": 7}),
        (LogForked(Path("shop"), 7), "LOG_FORKED", False, {}),
        (LogGone(Path("/var/secret")), "LOG_GONE", False, {}),
        (
            LogReplaced(LogIdentity(uuid.UUID(int=1), "3.x"), LogIdentity(uuid.UUID(int=2), "1.y")),
            "LOG_REPLACED",
            False,
            {
                "old": {"logId": str(uuid.UUID(int=1)), "epoch": "3.x"},
                "new": {"logId": str(uuid.UUID(int=2)), "epoch": "1.y"},
            },
        ),
        (PositionMalformed("x"), "CURSOR_INVALID", False, {}),
        (PositionForeign(uuid.UUID(int=1), uuid.UUID(int=2)), "CURSOR_FOREIGN", False, {}),
        (PositionForked(2, Position(9, 0)), "CURSOR_FORKED", False, {"epoch": 2, "end": "token 9:0"}),
        (PositionForked(2, None), "CURSOR_FORKED", False, {"epoch": 2, "end": None}),
        (HistoryPruned(Position(5, 0)), "HISTORY_PRUNED", False, {"oldest": "token 5:0"}),
        (PositionAhead(Position(5, 0)), "CURSOR_AHEAD", True, {"head": "token 5:0"}),
        (Lagged(7), "LAGGED", True, {"missed": 7}),
        (IllegalRequestError(0), "INVALID_DEMAND", False, {}),
        (GoingAway(), "GOING_AWAY", True, {}),
    ],
)
def test_every_error_has_its_word(error, code, retryable, data):
    problem = describe(error, token)
    assert (problem.code, problem.retryable, dict(problem.data)) == (code, retryable, data)
    assert problem.message
    assert "secret" not in problem.message, "where a log lies is no affair of clients"
    assert problem.payload() == {"code": code, "message": problem.message, "retryable": retryable, **data}


def test_damage_is_told_without_its_place_and_was_logged_where_it_was_met(caplog):
    """In one line for the log, and not in one for each who meets it."""
    problem = describe(WalCorrupted(1, 2, "a secret"))
    assert (problem.code, problem.retryable, problem.data) == ("INTERNAL", False, {})
    assert "damaged" in problem.message
    assert "secret" not in problem.message
    assert caplog.text == ""


def test_a_failed_disk_is_told_without_what_the_system_said_of_it():
    """F145: whoever appends is told whether it may have been written."""
    problem = describe(LogFailed("unknown", "a secret"))
    assert (problem.code, problem.retryable, problem.data) == ("LOG_FAILED", False, {"outcome": "unknown"})
    assert "secret" not in problem.message


@pytest.mark.parametrize("error", [RuntimeError("a secret"), OSError("a secret")])
def test_the_unexpected_is_told_by_an_id_and_no_internals(error, caplog):
    problem = describe(error)
    assert problem.code == "INTERNAL"
    assert problem.data["id"] in problem.message
    assert "secret" not in problem.message
    assert problem.data["id"] in caplog.text
    assert "a secret" in caplog.text


def test_a_message_stays_short_however_large_the_wrong_value_is():
    assert len(describe(InvalidOption("until", "x" * 100_000, "a version")).message) < 1000


@pytest.mark.parametrize("text", ["short", "ü" * 100, "☃" * 100, "a" * 122 + "☃", "𝄞" * 40, "\udcff" * 200])
def test_close_reasons_are_cut_at_a_character(text):
    reason = close_reason(text)
    assert len(reason.encode()) <= 123
    assert text.replace("\udcff", "?").startswith(reason)


def test_never_1011_and_retryable_codes_are_the_curable_ones():
    assert 1011 not in list(CloseCode)
    retryable = {code.value for code in CloseCode if code.retryable}
    assert retryable == {1000, 1001, 1006, 1012, 1013, 4408, 4491}


def test_the_document_of_the_protocol_tells_every_close_code_that_the_server_sends():
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| (\d{4}(?:, \d{4})*) \|", text, re.MULTILINE)
    # Not sent by us: ends that the peer's library sees or sends, and one that is kept for servers of other make.
    others = {
        CloseCode.NORMAL,
        CloseCode.GOING_AWAY,
        CloseCode.PROTOCOL_ERROR,
        CloseCode.ABNORMAL,
        CloseCode.SLOW_CONSUMER,
    }
    assert {int(code) for row in rows for code in row.split(", ")} == set(CloseCode) - others
