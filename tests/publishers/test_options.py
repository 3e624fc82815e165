"""Options: bounds, defaults, and what the refusal says."""

from dataclasses import FrozenInstanceError, fields

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import LogOptions


def test_every_default_is_within_its_bounds():
    assert LogOptions() == LogOptions()


def test_options_are_frozen():
    with pytest.raises(FrozenInstanceError):
        LogOptions().ring_events = 1  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sync", "never"),
        ("sync", None),
        ("ring_events", 0),
        ("ring_events", -1),
        ("ring_events", True),
        ("ring_events", 1.5),
        ("ring_events", "7"),
        ("ring_bytes", 0),
        ("segment_bytes", 64 * 1024 - 1),
        ("segment_age", 0),
        ("frame_bytes", 1),
        ("sync_interval", 0),
        ("sync_interval", float("nan")),
        ("retain_bytes", -1),
        ("dispatch_threads", 257),
        ("dispatch_threads", 0),
        ("batch_events", None),
        ("tail_poll", 0.0),
        ("publish", 1),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(InvalidOption, match=name) as caught:
        LogOptions(**{name: value})
    assert caught.value.parameter == name
    assert caught.value.value is value


@pytest.mark.parametrize("name", ["segment_age", "retain_bytes", "retain_age"])
def test_bounds_that_may_be_left_away_take_none(name):
    assert getattr(LogOptions(**{name: None}), name) is None


@pytest.mark.parametrize(
    "name", [f.name for f in fields(LogOptions) if f.name not in {"sync", "compress", "publish", "origin"}]
)
def test_no_option_takes_text(name):
    with pytest.raises(InvalidOption, match=name):
        LogOptions(**{name: "1"})


def test_floats_take_whole_numbers():
    assert LogOptions(sync_interval=1, retain_age=60).retain_age == 60
