"""Positions and their text."""

import contextlib
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import PositionError, PositionMalformed
from penstock_cdc.types import PositionToken
from publishers import Position

positions = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1))


@given(st.uuids(), st.integers(1, 2**63 - 1), positions, st.just(0) | st.integers(0, 2**64 - 1))
def test_a_token_is_read_back_as_it_was_written(log_id, epoch, position, random):
    token = PositionToken(log_id, epoch, position, random)
    assert PositionToken.parse(str(token)) == token
    assert len(str(token)) <= len(str(token._replace(random=0))) + 12


@given(positions, positions)
def test_positions_compare_as_they_lie_in_the_log(one, other):
    assert (one < other) == ((one.version, one.index) < (other.version, other.index))


def test_the_index_defaults_to_the_transaction_event():
    assert Position(7) == Position(7, 0)
    assert str(Position(7, 2)) == "7:2"


def test_the_random_bits_of_an_epoch_are_eleven_characters_of_base64url():
    """F144: the eight bytes as they lie in the log, so a token is text that needs no escape anywhere."""
    random = int.from_bytes(b"\xfb\xff\x00\x01\x02\x03\x04\x05", "little")
    assert str(PositionToken(UUID(int=5), 7, Position(3, 4), random)) == f"{5:032x}:7.-_8AAQIDBAU:3:4"
    assert str(PositionToken(UUID(int=5), 7, Position(3, 4))) == f"{5:032x}:7:3:4"


GOOD = str(PositionToken(UUID(int=5), 1, Position(3, 4)))
RANDOM = str(PositionToken(UUID(int=5), 1, Position(3, 4), 2**64 - 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:2",
        GOOD + ":1",
        GOOD + " ",
        GOOD.replace("3:4", "3:-4"),
        GOOD.replace("3:4", "+3:4"),
        GOOD.replace("3:4", "٣:4"),
        GOOD.replace(":1:", ":0:"),
        "z" * 32 + ":1:2:3",
        GOOD[1:],
        f"{UUID(int=5).hex}:1:{2**63}:0",
        f"{UUID(int=5).hex}:1:1:{2**32}",
        "9" * 5000,
        None,
        7,
        b"1:2",
        GOOD.encode(),
        GOOD.replace(":1:", ":01:"),
        GOOD.replace(":1:", ":1.:"),
        GOOD.replace(":1:", ":.AAAAAAAAAAE:"),
        GOOD.replace(":1:", ":1.AAAAAAAAAAA:"),
        RANDOM.replace("8:3", "9:3"),
        RANDOM.replace("8:3", "8=:3"),
        RANDOM.replace("8:3", "8A:3"),
        RANDOM.replace("8:3", ":3"),
        RANDOM.replace("_8", "/8"),
        RANDOM.replace("1.", "1.A"),
        RANDOM.replace("1.", "1.AAAA"),
    ],
)
def test_what_is_no_position_is_refused_with_its_text(text):
    with pytest.raises(PositionMalformed) as caught:
        PositionToken.parse(text)
    assert caught.value.text == text
    assert isinstance(caught.value, PositionError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text):
    with contextlib.suppress(PositionMalformed):
        assert str(PositionToken.parse(text)).count(":") == 3


@given(st.text("-_=.AZaz019:", max_size=14))
def test_a_place_has_one_text_only(epoch):
    text = f"{5:032x}:{epoch}:3:4"
    with contextlib.suppress(PositionMalformed):
        assert str(PositionToken.parse(text)) == text


def test_hexadecimal_in_capitals_is_the_same_log():
    log_id = uuid4()
    text = str(PositionToken(log_id, 1, Position(1, 0)))
    head, rest = text[:32], text[32:]
    assert PositionToken.parse(head.upper() + rest).log_id == log_id
