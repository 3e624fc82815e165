"""The options: how many there are, what each is called, and that ``docs/options.md`` shows them as they are."""

import pytest

from publishers.groups.settings import GroupSettings
from publishers.options import KEPT, LogOptions, options_of
from tests.options_page import CLASSES, PAGE, written
from transports.limits import Limits
from transports.sinks.options import SinkOptions

EVERY = [(cls.__name__, option) for cls in CLASSES for option in options_of(cls)]


def test_there_are_not_more_options_than_somebody_can_read():
    """A bound that no user has a reason to set is a constant of the module that keeps to it."""
    assert sum(len(options_of(cls)) for cls in (LogOptions, Limits, SinkOptions, GroupSettings)) <= 105


@pytest.mark.parametrize(("of", "option"), EVERY, ids=[f"{of}.{option.name}" for of, option in EVERY])
def test_an_option_says_what_it_means_and_takes_its_default(of, option):
    assert option.says, "its class has a line for it under Attributes"
    assert option.says.endswith((".", ")"))
    option.check(option.default)
    if "bytes" in option.says.lower().split(" ")[:2]:
        assert "bytes" in option.name, "a size is named after its unit"


def test_the_page_of_options_is_that_of_the_table():
    page = PAGE.read_text()
    assert written(page) == page, "python -m tests.options_page"


def test_a_command_reads_what_a_log_keeps_by_the_table():
    kept = {option.name: option for option in options_of(LogOptions) if option.name in KEPT}
    assert kept.keys() == set(KEPT)
    for text, value in (("20GiB", 20 * 2**30), ("none", None), ("0", 0)):
        assert kept["retain_bytes"].read(text) == value
    assert kept["retain_age"].read("1.5h") == 5400.0
    assert kept["origin"].read("7") == "7"
    assert kept["compress"].read("true") is True
