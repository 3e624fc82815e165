"""A change is told byte for byte as it always was: on disk, on every wire, to every sink."""

import hashlib
import json
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.transports.faces import OF_VIEW, blocks, lines, sample, stored, views

GOLDEN = Path(__file__).parents[1] / "golden" / "faces.json"
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


if __name__ == "__main__":  # only where a face is to change: python -m tests.transports.test_faces
    GOLDEN.write_text(json.dumps({name: kept(texts) for name, texts in told().items()}, indent=1) + "\n")
    sys.stdout.write(f"{GOLDEN} was written\n")
