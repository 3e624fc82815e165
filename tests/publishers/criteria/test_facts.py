"""What conditions ask of a block: read once, weighed, and forgotten."""

from decimal import Decimal

from publishers.criteria.conditions import ABSENT
from publishers.criteria.facts import facts_of, forget_facts, parse
from tests.publishers.criteria.plain_filter import block, row


def test_images_are_parsed_once_and_what_is_not_there_is_absent():
    """F58."""
    one = block([row(body=b'{"n":1.50}', before=None), row(body=None, before=b"null"), row(body=b"{")])
    facts = facts_of(one)
    assert facts.after(1) == {"n": Decimal("1.50")}
    assert facts.after(1) is facts.after(1)
    assert facts.before(1) is ABSENT
    assert facts.after(2) is ABSENT
    assert facts.before(2) is None
    assert facts.after(3) is ABSENT
    assert facts_of(one) is facts


def test_names_of_changed_fields_are_none_where_nothing_is_said():
    """E15: nor where what is said is no list of names."""
    lists = [b'["a","b"]', None, b"[]", b"{}", b'["a",1]', b"nonsense", b'["a","b"]']
    facts = facts_of(block([row(changed=one) for one in lists], first_index=5, leads=False))
    assert [facts.changed(index) for index in range(5, 12)] == [("a", "b"), (), (), (), (), (), ("a", "b")]
    assert facts_of(block([row()])).changed(1) == ()
    assert facts_of(block([row()])).changed(0) == ()


def test_what_is_parsed_is_weighed_and_given_back():
    """Invariant 12: a block that lies in a cache tells what it weighs with all that was made from it."""
    one = block([row(body=b'{"n":"%s"}' % (b"x" * 1000), changed=b'["n"]')])
    light = one.nbytes
    facts_of(one).after(1)
    assert one.nbytes >= light + 2 * 1000
    facts_of(one).changed(1)
    forget_facts(one)
    assert one.nbytes == light
    forget_facts(one)
    assert one.nbytes == light


def test_numbers_keep_every_digit():
    """F58."""
    assert parse(b"0.1000000000000000055511151231257827") == Decimal("0.1000000000000000055511151231257827")
    assert parse(b"123456789012345678901234567890") == 123456789012345678901234567890
    assert parse(b"1e99999999999999999999") is ABSENT
