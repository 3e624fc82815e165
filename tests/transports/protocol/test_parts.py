"""Transactions that come in parts, as a machine: what is open, what is stored, and their turn among the appends."""

import gc
import json
import math
import tracemalloc

import pytest

from penstock_cdc.errors import LogFull
from publishers.commits.submission import Wait
from tests.transports.protocol.test_appends import CHANGES, append, codes, done, refused, write
from tests.transports.protocol.test_server import acknowledged, closed, sent, subscribe
from transports.errors import CloseCode
from transports.problems import describe
from transports.protocol.parts import BeginSpool, DropSpool, Spool, WriteSpool


def say(made, kind, name="t", now=0.0, **fields):
    return made.receive(json.dumps({"type": kind, "id": name, **fields}), now)


def begin(made, name="t", now=0.0, **payload):
    (effect,) = say(made, "begin", name, now, payload=payload)
    assert isinstance(effect, BeginSpool), effect
    return effect.entry


def part(made, name="t", now=0.0, changes=CHANGES):
    return say(made, "part", name, now, payload={"changes": changes})


def code(effects):
    return [one["payload"]["code"] for one in sent(effects)]


def test_a_transaction_in_parts_takes_its_turn_with_its_commit():
    """F145: what comes before that is written before it, and waits for nothing."""
    made = acknowledged()
    entry = begin(made, producer="etl", sequence=3, wait="visible", unknown="ignored")
    (kept,) = part(made)
    assert (type(kept), kept.entry, json.loads(kept.changes)) == (Spool, entry, CHANGES)
    other = write(made, "a")
    assert done(made, other) != []
    assert sent(made.spooled(entry, 1)) == [{"type": "spooled", "id": "t", "parts": 1}]
    assert made.spooled(entry, 1) == []
    assert (made.transactions.waiting, len(made.transactions)) == (0, 1)
    part(made)
    (written,) = say(made, "commit", payload={"first": True})
    assert isinstance(written, WriteSpool)
    assert (written.request.producer, written.request.sequence, written.request.wait) == (
        "etl",
        3,
        Wait.VISIBLE,
    )
    assert (written.request.first, written.transaction) == (True, entry)
    assert made.spooled(entry, 2) == made.part_failed(entry, describe(LogFull(0, 1))) == []
    assert (len(made.transactions), made.transactions.waiting, len(made.window)) == (0, 0, 1)
    assert [one["type"] for one in done(made, written.entry)] == ["appended"]
    assert begin(made).request.producer is None


def test_a_commit_behind_a_refusal_is_refused_as_any_append():
    """F145: and what was kept of it is dropped."""
    made = acknowledged()
    first = write(made, "a")
    begin(made)
    refused(made, first)
    effects = say(made, "commit")
    assert code(effects[:1]) == ["PREDECESSOR_FAILED"]
    assert isinstance(effects[1], DropSpool)
    begin(made)
    (written,) = say(made, "commit", payload={"first": True})
    follower = write(made, "b")
    assert codes(refused(made, written.entry) + refused(made, follower)) == [
        ("t", "LOG_FULL"),
        ("b", "LOG_FULL"),
    ]
    begin(made)
    assert code(say(made, "commit", payload={"first": "yes"})[:1]) == ["INVALID_REQUEST"]


def test_a_part_that_is_refused_ends_its_transaction_and_nothing_else():
    """F145: parts on their way are ignored; a commit on its way refuses what is behind it."""
    made = acknowledged(message_bytes=1000, append_bytes=1000)
    entry = begin(made)
    effects = made.part_failed(entry, describe(LogFull(0, 1)))
    assert (code(effects[:1]), type(effects[1])) == (["LOG_FULL"], DropSpool)
    assert part(made) == made.part_failed(entry, describe(LogFull(0, 1))) == []
    assert done(made, write(made, "a")) != []
    assert code(say(made, "commit")) == ["NO_TRANSACTION"]
    assert code(append(made, "b")) == ["PREDECESSOR_FAILED"]
    assert done(made, write(made, "c", first=True)) != []
    begin(made)
    assert [type(one) for one in say(made, "abort")] == [DropSpool]
    assert say(made, "abort") == part(made) == []
    assert made.errors["LOG_FULL"] == 1


@pytest.mark.parametrize(
    ("limits", "option", "wanted"),
    [
        ({"transaction_bytes": 300}, "transaction_bytes", "TRANSACTION_TOO_LARGE"),
        ({"spooled_bytes": 600}, "principal_spooled_bytes", "TRANSACTION_TOO_LARGE"),
        ({"append_bytes": 200}, "append_bytes", "TOO_MANY_APPENDS"),
    ],
)
def test_the_bytes_of_parts_are_bounded(limits, option, wanted):
    """F145: of a transaction, and of what is not stored yet; a single part may be larger than that."""
    made = acknowledged(**limits)
    entry = begin(made)
    effects = part(made)
    assert [type(one) for one in effects] == [Spool]
    while isinstance(effects[0], Spool):
        effects = part(made)
    (told,) = sent(effects[:1])
    assert (told["payload"]["code"], told["payload"]["option"]) == (wanted, option)
    assert entry.ended
    assert made.transactions.waiting == 0
    if option == "append_bytes":
        again = begin(made)
        for number in range(1, 9):
            assert isinstance(part(made)[0], Spool)
            assert sent(made.spooled(again, number)) != []


def test_open_transactions_are_bounded_and_so_is_their_patience():
    """F145: the bound is told in the greeting."""
    made = acknowledged(transactions=2, transaction_idle=10.0)
    first, _ = begin(made, "a", 1.0), begin(made, "b", 2.0)
    assert code(say(made, "begin", "c", 2.0)) == ["TOO_MANY_APPENDS"]
    assert made.due == 11.0
    part(made, "a", 5.0)
    assert (made.due, made.tick(11.9)) == (12.0, [])
    told, dropped = made.tick(12.0)
    assert (code([told]), type(dropped)) == (["TRANSACTION_IDLE"], DropSpool)
    assert (made.due, first.ended) == (15.0, False)
    begin(made, "c", 12.0)
    assert [type(one) for one in made.lost()] == [DropSpool, DropSpool]
    assert (len(made.transactions), made.transactions.due) == (0, math.inf)


def test_ids_of_transactions_are_in_use_until_they_are_answered():
    """F145: 4409, as for all ids."""
    for again in (begin, append, subscribe, part):
        made = acknowledged()
        begin(made)
        if again is part:
            say(made, "commit")
            assert part(made) == []
            assert closed(say(made, "commit")).code is CloseCode.ID_IN_USE
        elif again is subscribe:
            effects = say(made, "subscribe", payload={"criteria": [], "credits": 1})
            assert closed(effects).code is CloseCode.ID_IN_USE
        else:
            effects = say(made, "begin") if again is begin else append(made, "t")
            assert closed(effects).code is CloseCode.ID_IN_USE


def test_what_is_wrong_with_a_beginning_is_told_at_once():
    """F145: and what is no message of a transaction closes the connection."""
    made = acknowledged()
    assert code(say(made, "begin", payload={"producer": "etl"})) == ["INVALID_REQUEST"]
    assert [type(one) for one in say(made, "begin")] == [BeginSpool]
    assert closed(say(made, "part")).code is CloseCode.BAD_REQUEST
    made = acknowledged()
    begin(made)
    made.goaway(5.0, "restart")
    assert isinstance(part(made)[0], Spool)
    assert code(say(made, "commit")[:1]) == code(say(made, "begin")) == ["GOING_AWAY"]


def test_what_is_said_of_a_transaction_takes_no_more_memory_than_its_message():
    """F145: as objects it would take many times as much, which nothing counts, until the client commits."""
    made, meta = acknowledged(), {"empty": [[] for _ in range(20_000)]}
    message = json.dumps({"type": "begin", "id": "t", "payload": {"meta": meta}}, separators=(",", ":"))
    tracemalloc.start()
    try:
        (effect,) = made.receive(message, 0.0)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * len(message)
    (written,) = say(made, "commit")
    assert effect.entry.annotated(written.request).meta == meta
    plain = begin(made, "u")
    assert plain.annotated(plain.request) is plain.request


def test_what_waits_is_counted_in_bytes_and_not_in_characters():
    """F145, F130: a bound of memory is none if a text of other scripts takes several times as much."""
    made = acknowledged()
    texts = [
        json.dumps(
            {"type": kind, "id": name, "payload": {"changes": ["\N{SNOWMAN}" * 100]}}, ensure_ascii=False
        )
        for kind, name in (("append", "a"), ("part", "t"))
    ]
    begin(made)
    for text in (*texts, texts[0].replace('"a"', '"b"').encode()):
        made.receive(text, 0.0)
    size = len(texts[0].encode())
    assert (made.window.nbytes, made.transactions.waiting) == (2 * size, len(texts[1].encode()))
