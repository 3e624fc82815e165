"""What records with changes, rows and images print: one short line, however much they hold."""

import dataclasses
import re

import msgspec
import pytest

import publishers
from penstock_cdc import fields, types
from publishers import ChangeLog, upsert
from publishers.model.change import Action
from publishers.model.errors import brief
from publishers.mutations.fields import FieldChange

HELD = re.compile(r"\b(bytes|Change|EntityRow|GroupDelivery|Mutation|dict\[str, object)\b")
HUGE = (
    ("tuple", tuple(map(str, range(5_000)))),
    ("Mapping", {str(n): b"x" * 99 for n in range(5_000)}),
    ("bytes", b"x" * 99_999),
)


def annotations(kind):
    found = {}
    for one in reversed(kind.__mro__):
        found |= {name: str(annotation) for name, annotation in vars(one).get("__annotations__", {}).items()}
    return found


RECORDS = {
    name: kind
    for module in (publishers, fields, types)
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type)
    and kind.__module__.startswith("publishers.")
    and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))
    and any(
        HELD.search(annotation) and "Callable" not in annotation for annotation in annotations(kind).values()
    )
    and kind.__repr__ is not publishers.Change.__repr__  # which prints no image
}


def stuffed(kind):
    """A record in whose fields there is more than anybody would want to see."""
    fields = {}
    for name, annotation in annotations(kind).items():
        fields[name] = next((value for word, value in HUGE if word in annotation), "x" * 500)
    if kind is FieldChange:
        fields |= {"path": ("lines", *range(500)), "action": Action.SET}
    if dataclasses.is_dataclass(kind):
        made = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made
    return kind(**{name: fields[name] for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", RECORDS.values(), ids=RECORDS)
def test_a_record_prints_one_short_line_with_its_name_and_its_fields(kind):
    shown = repr(stuffed(kind))
    assert len(shown) < 2_000
    assert "\n" not in shown
    assert shown.startswith(f"{kind.__name__}({next(iter(annotations(kind)))}=")


def test_all_that_hold_changes_are_among_them():
    assert {
        "History",
        "GroupDelivery",
        "DeadLetter",
        "EntityRow",
        "StatePage",
        "SchemaVersion",
    } <= RECORDS.keys()
    assert all(kind.__repr__ is brief for kind in RECORDS.values())


def test_a_page_of_history_prints_its_first_changes_and_yields_them_all(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        log.commit([upsert("order", str(number), {"n": "x" * 999}) for number in range(500)])
        page = log.history()
        assert list(page) == list(page.changes)
        assert len(page) == len(page.changes)
        assert re.fullmatch(
            r"History\(changes=\((<Change 1:\d [^>]*>, ){6}\.\.\.\), since=.*, more=\w+, .*\)", repr(page)
        )
        assert not log.history(since=log.head)
