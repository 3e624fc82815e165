"""F49: the words in which an examination tells what it found."""

import json

from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.files.segment import segment_name
from tests.publishers.wal.checks.damage import flip, frames_of, make_log


def test_a_report_and_a_repair_can_be_printed_for_programs_and_for_people(tmp_path):
    """F49."""
    acknowledged = make_log(tmp_path / "log")
    second = tmp_path / "log" / segment_name(2)
    offset, _ = frames_of(second)[4]
    flip(second, offset + 85)
    report = verify(tmp_path / "log")
    first, last = report.lost
    told = json.loads(json.dumps(report.as_json()))
    assert (told["verdict"], told["lost"], told["live"]) == ("CORRUPT", [first, last], False)
    assert (told["oldest"], told["newest"], last) == (1, first - 1, acknowledged[-1][0])
    assert [(one["kind"], one["verdict"], one["offset"], one["name"]) for one in told["findings"]] == [
        ("crc", "CORRUPT", offset, segment_name(2))
    ]
    assert str(report.findings[0]).startswith(f"corrupt: crc in {segment_name(2)} at byte {offset}: the crc")
    planned = json.loads(json.dumps(repair(tmp_path / "log").as_json()))
    assert (planned["done"], planned["after"], planned["before"]) == (False, None, told)
    assert [step["action"] for step in planned["steps"]] == ["cut"]
    done = json.loads(json.dumps(repair(tmp_path / "log", write=True).as_json()))
    assert done["after"]["verdict"] == Verdict.SOUND.name
    assert (done["lost"], done["refused"]) == ([first, last], None)
    assert done["kept"]
