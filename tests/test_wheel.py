"""The audit of the wheel, which ``.ci/run`` does with the one that it builds."""

from zipfile import ZipFile

import pytest

from tests.harness.wheel import ABOUT, audit, wanted

METADATA = b"Requires-Dist: msgspec>=0.19\n"


def build(path, files, metadata=METADATA):
    with ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        for name in ABOUT:
            wheel.writestr(f"penstock_cdc-0.dist-info/{name}", metadata if name == "METADATA" else b"x")
    return list(audit(path))


@pytest.fixture
def files():
    return {name: place.read_bytes() for name, place in wanted().items()}


def test_what_is_not_of_the_repository_is_found_in_a_wheel(tmp_path, files):
    """Too much, too little, something else, and a dependency from elsewhere."""
    path = tmp_path / "a.whl"
    assert len(files) > 600
    assert not any(name.startswith(("tests/", "transports/graphql/graphiql/")) for name in files)
    assert build(path, files) == []
    assert build(path, files | {"transports/evil.pth": b""}) == [
        "transports/evil.pth does not belong into the wheel"
    ]
    changed = files | {"flow/__init__.py": b"import os"}
    assert build(path, changed) == ["flow/__init__.py is not the file of the repository"]
    missing = {name: content for name, content in files.items() if name != "flow/py.typed"}
    assert build(path, missing) == ["flow/py.typed is not in the wheel"]
    elsewhere = b"Requires-Dist: msgspec @ https://example.org/m.whl\n"
    assert build(path, files, elsewhere) == [
        "it needs msgspec @ https://example.org/m.whl, which is an address and not a version"
    ]
