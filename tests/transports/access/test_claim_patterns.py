"""No name belongs to two principals because the claim of one of them reaches into that of the other."""

import itertools
from fnmatch import fnmatchcase

import pytest

from transports import Principal
from transports.access.claim_patterns import ClaimPatterns, wrong_with

HEADS = ("", "a-", "a-b:")
TAILS = ("", "-*", ":b", "-b", "-?")
VALUES = ("a", "b", "ab", "a-b", "b:b", "a-b:a", "-")
NAMES = ["".join(each) for size in range(1, 7) for each in itertools.product("ab-:", repeat=size)]


def test_no_name_is_in_the_patterns_of_two_principals():
    """F140: whatever two patterns a file has for names of one kind; what a principal gets otherwise is not less."""
    patterns = [f"{head}{{name}}{tail}" for head in HEADS for tail in TAILS]
    matched = {
        (pattern, value): {name for name in NAMES if fnmatchcase(name, pattern.replace("{name}", value))}
        for pattern in patterns
        for value in VALUES
    }
    filled = 0
    for two in itertools.combinations_with_replacement(patterns, 2):
        claims = ClaimPatterns([("slots", one) for one in two])
        owners = {}
        for value in VALUES:
            for pattern in two:
                found = claims.filled("slots", pattern, Principal(value))
                assert found in (None, pattern.replace("{name}", value))
                filled += found is not None
                for name in matched[pattern, value] if found else ():
                    assert owners.setdefault(name, value) == value, two
    assert filled > 700  # of 1,680: what is refused is not simply everything


@pytest.mark.parametrize(
    ("patterns", "name", "says"),
    [
        (["{name}", "{name}-*"], "ann-marie", "name is 'ann-marie', but '-' stands beside {name} in patterns for slots"),
        (["{name}", "{name}_*"], "ann-marie", None),
        (["all-{name}"], "ann-marie", None),
        (["{name}-*", "all-{name}"], "all", "name is 'all', with which another pattern for slots begins"),
        (["{team}-{name}"], "ann-marie", "name is 'ann-marie', but '-' stands beside {name} in patterns for slots"),
        (["{name}"], "a b", "name is 'a b', and not at most 255 letters, digits and _ . : @ -"),
        (["{team}-x"], "ann-marie", None),
    ],
)  # fmt: skip
def test_what_is_not_filled_in_has_a_reason(patterns, name, says):
    """F140."""
    claims = ClaimPatterns([("slots", one) for one in patterns])
    found = [claims.why_not("slots", one, Principal(name)) for one in patterns]
    assert found == [says] * len(patterns)


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("{tenant}-*", True),
        ("a-{tenant}-{name}:*", True),
        ("{tenant}*", False),
        ("{tenant}[-_]x", False),
        ("{tenant}{name}", False),
        ("*-{tenant}", False),
        ("[a{tenant}b]", False),
        ("{tenant", False),
        ("{}", False),
    ],
)
def test_a_claim_has_an_end(text, sound):
    """F140."""
    assert (wrong_with(text) is None) is sound
