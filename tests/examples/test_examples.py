"""The examples run, and print what they are said to print."""

from pathlib import Path

import pytest

from tests.examples.programs import example

ROOT = Path(__file__).parent.parent.parent


PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


@pytest.fixture
def printed(script):
    def printed(example):
        with script(PROGRAM, ROOT / "examples" / example) as process:
            out, err = process.communicate(280)
        assert process.returncode == 0, err
        return out.splitlines()

    return printed


def test_a_websocket_client_follows_a_log_at_its_own_pace(printed):
    assert printed("websocket_client.py") == [
        "42 UPSERT {'total': '10.00'}",
        "42 UPSERT {'total': '11.00'}",
        "42 UPSERT {'total': '12.00'}",
    ]


def test_clients_append_once_and_over_nothing_that_they_have_not_seen(printed):
    """F145."""
    assert printed("appending_client.py") == [
        "orders up to version 100",
        "EXPECTATION_FAILED of bolts and nothing was written: refused",
        "a repetition is a duplicate: True of version 102",
    ]


@pytest.mark.spark
def test_a_subscriber_in_the_driver_follows_the_batches_of_a_stream(spark, monkeypatch, capsys):
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # other tests take the same session
    example("foreach_batch").main()
    assert capsys.readouterr().out.splitlines() == ["versions: 3", "spent: {'ann': 18, 'bob': 12}"]


def test_workers_of_a_group_handle_each_key_in_order_and_what_fails_again(printed):
    """F75, F80, F83."""
    assert printed("group_workers.py") == [
        *(f"order {number}: new, paid, sent" for number in range(1, 6)),
        "failed attempts: True, dead letters: 0",
    ]


def test_a_consumer_goes_on_where_it_has_acknowledged_to_its_slot(printed):
    """F74, F87."""
    assert printed("slot_consumer.py") == [
        "generation 1, from 1:0",
        "  order 1: 1.00",
        "  order 2: 2.00",
        "  order 3: 3.00",
        "behind by 3 versions",
        "generation 2, from 3:0",
        "  order 3: 3.00 (again)",
        "  order 4: 4.00",
        "  order 5: 5.00",
    ]
