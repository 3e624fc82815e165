"""What leaves the filter of a sink leaves its target: each way out of a filter meets each kind of criteria and each target.

Real targets are in tests/servers.
"""

import contextlib
import io
import itertools
import json

import pytest

from penstock_cdc.errors import HistoryPruned, InvalidOption
from penstock_cdc.fields import push
from penstock_cdc.mutations import expire
from publishers import (
    ChangeLog,
    Content,
    Criterion,
    Operation,
    Position,
    View,
    rekey,
    remove,
    truncate,
    upsert,
)
from tests.harness.inside import intake_of
from tests.publishers.support import wait_until
from tests.transports.sinks.readers import CASES, TYPES, Own, Sql
from tests.transports.sinks.targets import QUICK, Target, rigged
from transports.sinks import FileSink, LogSinks, SinkOptions, SinkRunner, SinkState, StreamSink
from transports.sinks.config import read_sinks
from transports.sinks.kafka import KafkaSink


@pytest.fixture(params=CASES, ids=lambda one: one.__name__)
def case(request, tmp_path, monkeypatch):
    made = request.param(tmp_path, monkeypatch)
    yield made
    made.close()


# What happens to entities: each way of three steps, with and without before images.

IN, OUT, REMOVED, EXPIRED, CUT, MOVED = "OPEN", "SHUT", "removed", "expired", "cut", "moved"
WAYS = list(itertools.product((IN, OUT, REMOVED, EXPIRED), repeat=3))
WAYS += [(first, MOVED, last) for first in (IN, OUT) for last in (IN, OUT, REMOVED)]
NEW_KEY = "000"
FILTER = "status == OPEN"
ANYWHERE = Criterion(where=FILTER)
OPEN = Criterion(entity_types=TYPES, where=FILTER)


class Story:
    """Commits the steps of all entities, and knows the entities that there are."""

    def __init__(self):
        self.entities = {}
        self.number = 0

    def step(self, log, step):
        changes = []
        for number, (way, known) in enumerate(itertools.product(WAYS, (True, False)), 1):
            for kind in sorted(TYPES):
                changes += self._change(kind, str(number), way[step], known)
        if step == 1:  # all of one type go at once, and the step of those is repeated behind it
            changes.append(truncate("bill"))
            self.entities = {place: body for place, body in self.entities.items() if place[0] != "bill"}
            for number, way in enumerate(WAYS, 1):
                changes += self._change("bill", str(number), way[step], number % 2 == 0)
        log.commit(changes)

    def _change(self, kind, key, what, known):
        self.number += 1
        old = self.entities.pop((kind, key), None)
        before = {"before": old} if known and old is not None else {}
        if what == REMOVED:
            return [remove(kind, key, **before)]
        if what == EXPIRED:
            return [expire(kind, key, **before)]
        if what == MOVED:
            if old is None:
                return []
            self.entities[kind, key + NEW_KEY] = old
            return [rekey(kind, key, key + NEW_KEY, old, **before)]
        body = {"status": what, "n": self.number}
        if known and old is None:
            before = {"before": b"null"}
        changed = {"changed": ["n"] if old is not None and old["status"] == what else ["n", "status"]}
        self.entities[kind, key] = body
        return [upsert(kind, key, body, **before, **changed)]

    def inside(self):
        return {place: body for place, body in self.entities.items() if body["status"] == IN}


CRITERIA = {
    "where": [OPEN],
    "any entity type": [ANYWHERE],
    "all transitions": [
        Criterion(entity_types=TYPES, where=FILTER, transitions={"ENTERED", "LEFT", "STAYED"})
    ],
    "with all removals": [OPEN, Criterion(operations={"REMOVE", "EXPIRE", "TRUNCATE"})],
    "keys": [Criterion(entity_types=TYPES, where=FILTER, key_globs={"*"})],
    "annotations": [Criterion(entity_types=TYPES, where=FILTER, annotations="backfill not exists")],
    "in two": [
        Criterion(entity_types=TYPES, where=[FILTER, f"n {sign} 400"]) for sign in ("<", ">=")
    ],
    "two conditions": [Criterion(entity_types=TYPES, where=[FILTER, "n >= 0"])],
    "before, too": [Criterion(entity_types=TYPES, where=[FILTER, "before:n >= 0"]), OPEN],
}  # fmt: skip
# Criteria that leave out changes by which an entity stays inside, so that a target may have an older state of it.
SOME = {
    "changed": [Criterion(entity_types=TYPES, where=FILTER, changed={"status"})],
    "entered and left": [Criterion(entity_types=TYPES, where=FILTER, transitions={"ENTERED", "LEFT"})],
    "entered": [Criterion(entity_types=TYPES, where=FILTER, transitions={"ENTERED"})],
}


def judge(case, story, *, values=True):
    found, right = case.entities(), story.inside()
    if not case.whole:
        # What is in the cache is what there is, so what has changed or left is not there.
        assert found.items() <= right.items()
        case.fill(right)
    elif values:
        assert found == right
    else:
        assert found.keys() <= right.keys()
        assert all(key.endswith(NEW_KEY) for _, key in right.keys() - found.keys())  # says no changed fields


# The engine meets all criteria, and each target the first ones.
PAIRS = [(Own, name) for name in (*CRITERIA, *SOME)]
PAIRS += [(one, name) for one in CASES[:-1] for name in ("where", "with all removals")]


@pytest.mark.parametrize(("case", "criteria"), PAIRS, indirect=["case"])
def test_what_leaves_the_filter_leaves_the_target(case, tmp_path, criteria):
    """F180: whether the log knows the before image or not, and behind a crash that repeats what was sent."""
    story, values = Story(), criteria in CRITERIA
    wishes = CRITERIA[criteria] if values else SOME[criteria]
    with rigged(tmp_path / "log", case.sink(), criteria=wishes, batch_changes=7 * len(WAYS)) as rig:
        for step in range(3):
            story.step(rig.log, step)
            rig.drained()
            judge(case, story, values=values)
            rig.died()
        rig.log.commit([upsert("order", "9999", {"status": OUT, "n": 0})])
        rig.drained()
        judge(case, story, values=values)


def streams(rig):
    """Steps until the rows have come, and all changes."""

    def held():
        status = rig.runner.statistics()
        at = [place for place in (status.position, status.confirmed) if place is not None]
        return status.state is SinkState.STREAMING and max(at, default=Position(0)) >= rig.log.head

    rig.until(held)


@pytest.mark.parametrize("how", ["initial", "again", "on_gap"])
def test_rows_outside_the_filter_leave_the_target(case, tmp_path, how):
    """F180: rows come first, and repair what has left the filter while the sink was off or its history was lost."""
    story = Story()
    options = {"criteria": OPEN, "log": {"state": True, "state_interval": 0.0}}
    options |= {"initial": {"snapshot": "initial", "since": "latest"}, "on_gap": {"snapshot": "on_gap"}}.get(
        how, {}
    )
    with rigged(tmp_path / "log", case.sink(), **options) as rig:
        story.step(rig.log, 0)
        streams(rig)
        judge(case, story)
        inside = set(story.inside())
        if how == "again":
            rig.runner.switch_off()
            rig.runner.step()
        story.step(rig.log, 1)
        if how == "again":
            rig.runner.switch_on()
            streams(rig)
            done = rig.runner.refresh()
            rig.until(done.done)
            done.result()
        elif how == "on_gap":
            rig.runner.machine._lose(HistoryPruned(rig.log.head))
        streams(rig)
        if how == "initial":
            judge(case, story)
        elif case.whole:
            # Of what was removed meanwhile there is no row, neither inside nor outside of a filter.
            gone = inside - story.entities.keys()
            found = {place: body for place, body in case.entities().items() if place not in gone}
            assert found == story.inside()
        story.step(rig.log, 2)
        streams(rig)
        if how == "initial":
            judge(case, story)


def test_rows_that_begin_anew_repair_what_the_first_ones_brought(tmp_path):
    """F180: what has left the filter before the rows began anew is told by no change."""
    case, body = Own(tmp_path, None), {"status": IN}
    options = {"snapshot": "initial", "batch_changes": 2, "log": {"state": True, "state_interval": 0.0}}
    with rigged(tmp_path / "log", case.sink(), criteria=OPEN, **options) as rig:
        rig.log.commit([upsert("order", str(n), body) for n in range(9)])
        rig.until(case.entities)
        assert rig.runner.state is SinkState.SNAPSHOT
        rig.log.commit([upsert("order", "0", {"status": OUT})])
        intake_of(rig.runner.machine).rows_anew()
        rig.runner.machine._supply_anew()
        streams(rig)
        assert case.entities() == {("order", str(n)): body for n in range(1, 9)}


@pytest.mark.parametrize("case", [Own, Sql], indirect=True)
def test_a_view_may_hide_what_the_filter_tests(case, tmp_path):
    """F180: conditions test what is stored."""
    story = Story()
    view = View.of(Content.BODY, fields=["n"])
    with rigged(tmp_path / "log", case.sink(), criteria=OPEN, view=view) as rig:
        for step in range(3):
            story.step(rig.log, step)
            rig.drained()
            if case.whole:
                right = {place: {"n": body["n"]} for place, body in story.inside().items()}
                assert case.entities() == right


@pytest.mark.parametrize(
    "criteria",
    [
        Criterion(changed={"status"}),
        Criterion(where="before:status == SHUT"),
        Criterion(key_globs={"*"}),
        Criterion(key_globs={"*"}, operations={"UPSERT", "REMOVE", "EXPIRE", "TRUNCATE"}),
    ],
    ids=repr,
)
def test_removals_reach_the_target_although_they_have_no_fields_and_no_keys(tmp_path, criteria):
    """F180."""
    case = Own(tmp_path, None)
    with rigged(tmp_path / "log", case.sink(), criteria=criteria) as rig:
        body, options = {"status": IN}, {"before": {"status": OUT}, "changed": ["status"]}
        rig.log.commit([upsert(kind, str(n), body, **options) for kind in sorted(TYPES) for n in range(3)])
        rig.log.commit([remove("order", "0"), expire("order", "1"), truncate("bill")])
        rig.drained()
        assert case.entities() == {("order", "2"): body}


MOVES = Criterion(where=FILTER, transitions={"ENTERED", "LEFT"})


@pytest.mark.parametrize(
    ("criteria", "right"),
    [
        (ANYWHERE, [("UPSERT", "1"), ("UPSERT", "2")]),
        (MOVES, [("UPSERT", "1"), ("UPSERT", "2"), ("REMOVE", "1")]),
    ],
    ids=["of changes", "of transitions"],
)
@pytest.mark.parametrize("target", ["stream", "files"])
def test_a_target_of_events_gets_what_the_criteria_say(tmp_path, target, criteria, right):
    """F180: one that asks for LEFT gets a REMOVE."""
    stream = io.BytesIO()
    sink = StreamSink(stream) if target == "stream" else FileSink(tmp_path / "out", max_bytes=1)
    with rigged(tmp_path / "log", sink, criteria=criteria) as rig:
        rig.log.commit([upsert("order", key, {"status": IN}) for key in "12"])
        rig.log.commit([upsert("order", "1", {"status": OUT}, before={"status": IN})])
        rig.log.commit([upsert("order", key, {"status": OUT}) for key in "23"])
        rig.drained()
        written = b"".join(one.read_bytes() for one in sorted((tmp_path / "out").glob("*.jsonl")))
        told = [json.loads(line) for line in (stream.getvalue() or written).splitlines()]
        assert [(one["operation"], one["key"]) for one in told] == right
        left = [one for one in told if one["operation"] == "REMOVE"]
        assert all(one.get("body") is None and one["before"] == {"status": IN} for one in left)


def test_what_cannot_be_told_of_is_refused_at_construction(tmp_path):
    """F180: a field-level change does not tell whether its entity is in the filter."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        for wishes, refused in ((OPEN, True), (Criterion(entity_types={"order"}), False)):
            sink = KafkaSink("broker:1", field_changes=True)
            with contextlib.ExitStack() as stack:
                if refused:
                    stack.enter_context(pytest.raises(InvalidOption, match="without conditions on values"))
                SinkRunner(log, "kafka", sink, SinkOptions(criteria=wishes))


def test_a_field_level_change_is_no_entity_that_leaves(tmp_path):
    """F180: it has a piece of its entity, of which the filter says nothing."""
    target = Target()
    target.keeps_entities = True
    with rigged(tmp_path / "log", target, criteria=OPEN) as rig:
        body = {"status": IN, "items": [1]}
        rig.log.commit([upsert("order", "1", body)])
        rig.log.commit([upsert("order", "1", {**body, "items": [1, 2]}, changes=[push("items", 2)])])
        rig.drained()
        whole = [one for batch in target.taken for one in batch.changes if one.field is None]
        assert [one.operation for one in whole] == [Operation.UPSERT, Operation.UPSERT]


def test_a_file_of_sinks_declares_the_filter_of_one(tmp_path):
    """F180."""
    (tmp_path / "sinks.toml").write_text(
        f"""
        log = "log"
        [[sinks]]
        name = "open-orders"
        kind = "sql"
        url = "sqlite:///{tmp_path}/t.db"
        create_tables = true
        start = "earliest"
        linger = 0
        criteria = [{{ entity_types = ["bill", "order"], where = [{{ path = "status", compare = "EQ", value = "OPEN" }}] }}]
        """
    )
    case, story = Sql(tmp_path, None), Story()
    told = read_sinks(tmp_path / "sinks.toml")
    with ChangeLog.open(told.directory, **QUICK) as log, LogSinks(log) as sinks:
        for name, one in told.sinks.items():
            sinks.add(name, one.sink, one.options)
        for step in range(3):
            story.step(log, step)
            wait_until(lambda: case.entities() == story.inside(), sinks.told)
