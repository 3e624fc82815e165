"""Checks for the required packages before any other import, so that the error is one line that says what to install."""

from importlib.util import find_spec
from typing import Final

_EXTRA: Final = "pip install 'penstock-cdc[spark]'"
_OLDEST: Final = (4, 2)

for _name in ("pyspark", "pyarrow"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"publishers.spark needs {_name}: {_EXTRA}", name=_name)

from pyspark import __version__ as _found  # noqa: E402 - it may be missing

if tuple(map(int, _found.split(".")[:2])) < _OLDEST:
    raise ImportError(
        f"publishers.spark needs pyspark 4.2 or newer, and this is {_found}: {_EXTRA}", name="pyspark"
    )
