import pytest

from publishers.errors import LogFailed
from publishers.wal.append.health import Health


def test_the_first_reason_stays():
    health = Health()
    health.check()
    health.fail(OSError("first"))
    health.fail(OSError("second"))
    assert health.why == "first"
    with pytest.raises(LogFailed, match="first") as caught:
        health.check()
    assert caught.value.outcome == "refused"


def test_an_error_without_a_text_is_named_by_its_kind():
    health = Health()
    health.fail(KeyboardInterrupt())
    assert health.why == "KeyboardInterrupt"
