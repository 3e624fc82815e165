"""A change is told byte for byte as it always was: on disk, on every wire, to every sink."""

import hashlib
import json
import sys
from functools import cache
from pathlib import Path

import pytest

from publishers import Change, Content, Integers
from publishers.blocks.block import Block
from publishers.model.fields import FIELDS, Field, FieldKind
from publishers.views.view import View
from tests.transports.faces import OF_VIEW, blocks, lines, sample, stored, views, wire
from transports.codec.replies import read

GOLDEN = Path(__file__).parents[1] / "golden" / "faces.json"
JSON = ("wire", "alone", "native", "graphql")
SHOWN = 2  # so many texts are in the file beside the digest of all, for whoever looks for a difference


@cache
def told() -> dict[str, list[bytes]]:
    """The texts of each face in each view, by their names."""
    made = blocks()
    found = {
        "stored": [text for block in made for text in stored(block)],
        "lines": [text for mutation in sample(1, 40) for text in lines(mutation)],
    }
    for name, view in views():
        for face, tell in OF_VIEW.items():
            found[f"{face} {name}"] = [text for block in made for text in tell(block, view)]
    return found


def kept(texts: list[bytes]) -> dict[str, object]:
    digest = hashlib.sha256(b"\n".join(texts)).hexdigest()
    return {"digest": digest, "first": [text.decode("utf-8", "backslashreplace") for text in texts[:SHOWN]]}


@pytest.mark.parametrize("face", json.loads(GOLDEN.read_text()) if GOLDEN.exists() else [])
def test_each_face_is_that_of_the_golden_file(face):
    """F1, F22, F23: what was written and read by earlier versions stays so."""
    assert kept(told()[face]) == json.loads(GOLDEN.read_text())[face]


def test_the_golden_file_has_every_face():
    """F23."""
    assert told().keys() == json.loads(GOLDEN.read_text()).keys()


def json_of(field: Field, change: Change, view: View) -> object:
    """What faces in JSON have to say of a field of a change, as the table has it; None for nothing."""
    value = getattr(change, field.attribute)
    match field.kind:
        case FieldKind.NUMBER:
            beyond = value is not None and value > 2**53 and view.integers is Integers.TEXT
            return str(value) if beyond else value
        case FieldKind.MOMENT:
            return value and value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case FieldKind.WORD:
            return value and value.name
        case FieldKind.JSON:
            return None if value is None else json.loads(value)
        case FieldKind.NAMES:
            return list(value) if value or (value is not None and field.optional) else None
        case _:
            return value


@cache
def seen() -> list[tuple[str, View, Block, Change, dict[str, dict[str, object]]]]:
    """Each change of the sample in each view, and the members that each face tells."""
    found = []
    for name, view in views():
        for block in blocks():
            faces = {
                face: list(map(json.loads, tell(block, view)))
                for face, tell in OF_VIEW.items()
                if face in JSON
            }
            text = b",".join(wire(block, view))
            message = b'{"type":"next","id":"a","events":[%s],"cursor":"c","boundary":true}' % text
            faces["client"] = list(read(message).changes())
            for place, change in enumerate(block.changes(block.indices, view)):
                found.append((name, view, block, change, {face: told[place] for face, told in faces.items()}))
    return found


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_each_face_tells_a_field_in_each_view_as_the_table_has_it(field):
    """F1, F20, F23: field by view by face, with a change in process as the measure."""
    for name, view, block, change, faces in seen():
        where = (name, change, field.name)
        value, told = getattr(change, field.attribute), json_of(field, change, view)
        implied = field.versioned and value == block.version
        assert (
            faces["wire"].get(field.name) == faces["alone"].get(field.name) == (None if implied else told)
        ), where
        assert faces["native"].get(field.name) == (None if implied else told), where
        assert getattr(faces["client"], field.attribute) == value, where
        graphql = faces["graphql"]["data"]["onChange"][field.name]
        if field.kind is FieldKind.NUMBER:
            assert graphql == (None if value is None else str(value)), where
        else:
            assert graphql == ([] if value == () else told), where
        if field.images and view.content is Content.HEADER:
            assert not value, where
        if name == "apart" and not field.apart:
            assert value is None, where


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_sample_has_each_field(field):
    """F23: all but what only a damaged change, or a view that lacks images, has."""
    told = [change for _, _, _, change, _ in seen() if getattr(change, field.attribute)]
    assert bool(told) is (field.name != "error")


if __name__ == "__main__":  # only where a face is to change: python -m tests.transports.test_faces
    GOLDEN.write_text(json.dumps({name: kept(texts) for name, texts in told().items()}, indent=1) + "\n")
    sys.stdout.write(f"{GOLDEN} was written\n")
