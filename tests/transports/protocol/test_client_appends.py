"""The appends of a client as a machine: windows, order, refusals, cuts."""

import json

from penstock_cdc.errors import TransactionTooLarge
from tests.transports.protocol.test_appends import CURSOR
from transports.codec import replies
from transports.errors import RemoteError
from transports.protocol.client_appends import AppendAnswered, ClientAppend, ClientAppends, ResumeAppends
from transports.protocol.connection import Send

LIMITS = {"appends": 3, "appendBytes": 10_000, "messageBytes": 5_000}


def machine(**limits):
    made = ClientAppends(lambda attempt: 0.5 + attempt)
    assert made.began(LIMITS | limits) == []
    return made


def put(made, *names, **payload):
    entries = [ClientAppend(name, {"changes": [], **payload}) for name in names]
    return entries, [effect for entry in entries for effect in made.append(entry)]


def said(effects):
    """Of what is sent, the ids; those that say that nothing is under way have a star."""
    messages = [json.loads(effect.data) for effect in effects if isinstance(effect, Send)]
    return [one["id"] + "*" * one["payload"].get("first", False) for one in messages]


def told(effects):
    answers = [effect for effect in effects if isinstance(effect, AppendAnswered)]
    return [(one.entry.id, getattr(one.answer, "code", None) or one.answer.version) for one in answers]


def good(made, name, version=7):
    return made.answered(replies.AppendedReply(name, version, CURSOR, duplicate=False, changes=1))


def bad(made, name, code="PREDECESSOR_FAILED", *, retryable=True, **data):
    return made.refused(name, RemoteError(code, "no", retryable=retryable, data=data))


def test_a_window_is_sent_and_goes_on_with_each_answer():
    """F145: the first says that nothing is under way, and so does each that is alone."""
    made = machine()
    _, effects = put(made, "a", "b", "c", "d", "e")
    assert said(effects) == ["a*", "b", "c"]
    effects = good(made, "a")
    assert told(effects) == [("a", 7)]
    assert effects[0].answer.cursor == CURSOR
    assert said(effects) == ["d"]
    for name in "bcd":
        effects = good(made, name)
    assert said(good(made, "e")) == []
    assert said(put(made, "f")[1]) == ["f*"]
    assert good(made, "a") == bad(made, "a") == []


def test_bytes_are_bounded_too_and_what_is_too_large_is_not_sent():
    """F145: a single one may be above the window, none above a message."""
    made = machine(appendBytes=300)
    _, effects = put(made, "a", "b", meta={"pad": "x" * 200})
    assert said(effects) == ["a*"]
    assert said(good(made, "a")) == ["b*"]
    (answered,) = put(machine(), "c", meta={"pad": "x" * 6000})[1]
    assert isinstance(answered.answer, TransactionTooLarge)
    assert answered.answer.option == "messageBytes"


def test_what_is_refused_for_the_sake_of_another_is_sent_again_behind_all_answers():
    """F145: in its order, and before what came later."""
    made = machine()
    put(made, "a", "b", "c", "d")
    effects = bad(made, "a", "EXPECTATION_FAILED", retryable=False)
    assert told(effects) == [("a", "EXPECTATION_FAILED")]
    assert effects[0].answer.outcome == "refused"
    assert said(effects) == said(put(made, "e")[1]) == said(bad(made, "b")) == []
    assert said(bad(made, "c")) == ["b*", "c", "d"]
    assert said(good(made, "b")) == ["e"]


def test_a_server_without_room_is_given_time():
    """F145: longer each time, until something is written."""
    made = machine()
    put(made, "a", "b")
    assert bad(made, "a", "TOO_COSTLY") == []
    assert bad(made, "b") == [ResumeAppends(0.5)]
    assert said(put(made, "c")[1]) == []
    assert said(made.resume()) == ["a*", "b", "c"]
    bad(made, "a", "TOO_MANY_APPENDS")
    bad(made, "b")
    assert bad(made, "c") == [ResumeAppends(1.5)]
    assert said(made.resume()) == ["a*", "b", "c"]
    good(made, "a")
    good(made, "b")
    assert bad(made, "c", "TOO_COSTLY") == [ResumeAppends(0.5)]
    made.lost()
    assert made.resume() == []
    assert said(made.began(LIMITS)) == ["c*"]
    assert told(bad(made, "c", "TOO_COSTLY", retryable=False)) == [("c", "TOO_COSTLY")]


def test_after_a_cut_everything_without_an_answer_is_sent_again_in_order():
    """F145: also what was refused for the sake of another, and what was never sent."""
    made = machine()
    put(made, "a", "b", "c", "d")
    bad(made, "a", "LOG_FULL")
    bad(made, "b")
    made.lost()
    assert said(put(made, "e")[1]) == []
    assert said(made.began(LIMITS | {"appends": 9})) == ["b*", "c", "d", "e"]


def test_a_server_that_stops_is_left():
    """F145: what it refuses for that goes to the next one."""
    made = machine()
    put(made, "a", "b")
    assert bad(made, "a", "GOING_AWAY") == bad(made, "b") == []
    assert made.resume() == []
    made.lost()
    assert said(made.began(LIMITS)) == ["a*", "b"]


def test_what_is_given_up_is_known_to_be_refused_or_unknown():
    """F145: only what was under way is unknown."""
    made = machine(appends=2)
    put(made, "a", "b", "c")
    bad(made, "a", "LOG_FULL")
    assert [(entry.id, entry.outcome) for entry in made.give_up()] == [("b", "unknown"), ("c", "refused")]
    assert made.give_up() == []


def test_an_outcome_is_unknown_only_where_nobody_knows():
    """F145: a refusal tells nothing of what was sent before a cut, unless it comes behind the look for repetitions."""
    for code, cut, data, outcome in (
        ("FORBIDDEN", False, {}, "refused"),
        ("FORBIDDEN", True, {}, "unknown"),
        ("EXPECTATION_FAILED", True, {}, "refused"),
        ("TRANSACTION_REMOVED", True, {}, "refused"),
        ("LOG_FAILED", False, {"outcome": "unknown"}, "unknown"),
        ("LOG_FAILED", False, {"outcome": "refused"}, "refused"),
        ("INTERNAL", False, {"id": "x"}, "unknown"),
    ):
        made = machine()
        put(made, "a")
        if cut:
            made.lost()
            made.began(LIMITS)
        (effect,) = bad(made, "a", code, retryable=False, **data)
        assert effect.answer.outcome == outcome, (code, cut)
