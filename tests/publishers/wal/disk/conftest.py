"""What tests the disk lies on it."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    return on_disk
