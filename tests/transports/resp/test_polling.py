"""``CDCPOLL``, by a stock client."""

import json

import pytest
import redis

from publishers import upsert
from publishers.mutations.mutation import remove, truncate


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_stock_client_polls_changes_as_kora_documents_them(log, resp, stock, protocol):
    """F133: sequence number, milliseconds, operation, key and value of each."""
    log.commit([upsert("user", "1000", {"name": "Alice"})])
    log.commit([remove("user", "1000"), truncate("user")])
    client = stock(resp(), protocol=protocol)
    assert client.ping()
    events = client.execute_command("CDCPOLL", 0, 100)
    assert [event[2:4] for event in events] == [
        [b"Set", b"user:1000"],
        [b"Del", b"user:1000"],
        [b"FlushDb", b"user:"],
    ]
    assert [event[4] and json.loads(event[4]) for event in events] == [{"name": "Alice"}, None, None]
    sequences = [event[0] for event in events]
    assert sequences == sorted(set(sequences))
    assert events[0][1] == int(log.history(limit=1).changes[0].timestamp.timestamp() * 1000)


def test_the_next_poll_goes_on_behind_the_last_number(log, resp, stock):
    """F133: as Kora's documentation has clients do it, however small the pages are."""
    for number in range(5):
        log.commit([upsert("user", f"{number}-{place}", {}) for place in range(3)])
    client = stock(resp())
    found, since = [], 0
    while events := client.execute_command("CDCPOLL", since, 2):
        found += [event[3] for event in events]
        since = events[-1][0] + 1
    assert found == [f"user:{number}-{place}".encode() for number in range(5) for place in range(3)]


def test_a_sequence_beyond_the_end_is_refused(log, resp, stock, fill):
    """F133: a trap of Kora, which gives nothing for ever."""
    fill(3)
    client = stock(resp())
    last = client.execute_command("CDCPOLL", 0, 100)[-1][0]
    assert client.execute_command("CDCPOLL", last + 1, 1) == []
    with pytest.raises(redis.ResponseError, match=r"CURSOR_AHEAD .* the next is"):
        client.execute_command("CDCPOLL", last * 2, 1)
