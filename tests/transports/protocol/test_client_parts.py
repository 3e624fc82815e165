"""Transactions that do not fit in one message, as the machine of a client sends them in parts."""

import json

from penstock_cdc.errors import TransactionTooLarge
from tests.transports.protocol.test_client_appends import bad, good, machine, told
from transports.codec.replies import SpooledReply
from transports.protocol.client_appends import AppendAnswered, ClientAppend, ResumeAppends
from transports.protocol.connection import Send

LIMITS = {"messageBytes": 300, "appendBytes": 700, "transactions": 4}


def put(made, name, size, **payload):
    changes = [{"key": f"{name}{number}", "pad": "x" * 100} for number in range(size)]
    return made.append(ClientAppend(name, {"changes": changes, **payload}))


def said(effects):
    """Kinds and names; of parts the keys, and with a star what says that nothing is under way."""
    found = []
    for effect in effects:
        if isinstance(effect, Send):
            one = json.loads(effect.data)
            keys = [change["key"] for change in one.get("payload", {}).get("changes", ())]
            star = "*" * one.get("payload", {}).get("first", False)
            found.append(" ".join([one["type"], one["id"] + star, *(keys if one["type"] == "part" else [])]))
    return found


def stored(made, name, parts):
    return made.spooled(SpooledReply(name, parts))


def test_what_does_not_fit_in_a_message_is_sent_in_parts_within_the_window():
    """F145: and nothing behind it before its commit."""
    made = machine(**LIMITS)
    assert said(put(made, "t", 7, meta={"by": "ann"})) == ["begin t.1", "part t.1 t0 t1", "part t.1 t2 t3"]
    assert said(put(made, "a", 1)) == []
    assert "t.1" in made
    assert said(stored(made, "t.1", 1)) == ["part t.1 t4 t5"]
    assert said(stored(made, "other", 9)) == []
    assert said(stored(made, "t.1", 3)) == ["part t.1 t6", "commit t.1*", "append a"]
    assert stored(made, "t.1", 4) == []
    assert told(good(made, "t.1")) == [("t", 7)]
    assert told(good(made, "a")) == [("a", 7)]


def test_what_cannot_fit_is_not_encoded_to_find_that_out():
    """F145: a part after the other, as far as there is room."""

    class Changes(list):
        read = 0

        def __iter__(self):
            for change in super().__iter__():
                self.read += 1
                yield change

    made, changes = machine(**LIMITS), Changes([{"key": ""}] * 1000)
    assert said(made.append(ClientAppend("t", {"changes": changes})))[0] == "begin t.1"
    assert changes.read < 100
    (answered,) = machine(messageBytes=300).append(ClientAppend("u", {"changes": changes}))
    assert (answered.answer.option, answered.answer.value) == ("messageBytes", 8000)


def test_a_commit_waits_for_room_in_the_window_and_for_the_answers_to_a_refusal():
    """F145: what was refused for the sake of another is written before it, so its parts are sent again."""
    made = machine(**LIMITS, appends=2)
    assert said(put(made, "a", 1)) == ["append a*"]
    assert said(put(made, "b", 1)) == ["append b"]
    assert said(put(made, "t", 3)) == []
    assert said(good(made, "a")) == ["begin t.1", "part t.1 t0 t1", "part t.1 t2", "commit t.1"]
    made = machine(**LIMITS)
    put(made, "a", 1)
    put(made, "b", 1)
    assert said(put(made, "t", 5))[0] == "begin t.1"
    effects = bad(made, "a", "EXPECTATION_FAILED", retryable=False)
    assert (told(effects), said(effects)) == ([("a", "EXPECTATION_FAILED")], [])
    assert said(stored(made, "t.1", 2)) == ["part t.1 t4"]
    again = bad(made, "b")
    assert said(again) == ["abort t.1", "append b*", "begin t.2", "part t.2 t0 t1", "part t.2 t2 t3"]
    assert said(stored(made, "t.1", 3)) == []
    assert said(bad(made, "t.1", "NO_TRANSACTION", retryable=False)) == []
    assert said(stored(made, "t.2", 2)) == ["part t.2 t4", "commit t.2"]


def test_what_is_refused_before_its_commit_refuses_nothing_else():
    """F145: it is told, or begun again when there is room."""
    made = machine(**LIMITS)
    put(made, "a", 1)
    put(made, "t", 9)
    put(made, "b", 1)
    effects = bad(made, "t.1", "LOG_FULL")
    assert (told(effects), said(effects)) == ([("t", "LOG_FULL")], ["append b"])
    assert effects[0].answer.outcome == "refused"
    put(made, "u", 9)
    assert bad(made, "u.2", "TRANSACTION_IDLE") == []
    good(made, "a")
    assert good(made, "b")[1:] == [ResumeAppends(0.5)]
    assert said(made.resume())[0] == "begin u.3"
    assert bad(made, "u.3", "GOING_AWAY") == []
    assert said(made.resume()) == []
    made.lost()
    assert said(made.began({**LIMITS, "appends": 3}))[0] == "begin u.4"
    made.lost()
    (entry,) = made.give_up()
    assert (entry.id, entry.outcome) == ("u", "refused")


def test_what_may_have_been_committed_is_not_called_refused_because_its_parts_are():
    """F145: nobody has looked for a repetition then."""
    made = machine(**LIMITS)
    assert said(put(made, "t", 3))[-1] == "commit t.1*"
    made.lost()
    made.began({**LIMITS, "appends": 3, "appendBytes": 300})
    (effect,) = bad(made, "t.2", "TRANSACTION_TOO_LARGE", retryable=False)
    assert effect.answer.outcome == "unknown"


def test_what_cannot_be_sent_in_parts_either_is_told():
    """F145: a change above a message, a beginning above one, and a server that takes no parts."""
    made = machine(**LIMITS)
    changes = [{"key": "1"}, {"key": "2", "pad": "x" * 400}]
    effects = made.append(ClientAppend("t", {"changes": changes}))
    assert said(effects) == ["begin t.1", "part t.1 1", "abort t.1"]
    assert isinstance(effects[-1], AppendAnswered)
    assert "a change has" in str(effects[-1].answer)
    (answered,) = put(made, "u", 1, meta={"pad": "x" * 400})
    assert isinstance(answered.answer, TransactionTooLarge)
    (answered,) = put(machine(messageBytes=300), "v", 3)
    assert answered.answer.option == "messageBytes"
    made = machine(**LIMITS)
    put(made, "a", 1)
    put(made, "t", 9)
    bad(made, "a", "LOG_FULL")
    made.lost()
    assert stored(made, "t.1", 1) == []
