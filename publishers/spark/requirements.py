"""Checks for the required packages before any other import, so that the error is one line that says what to install."""

from importlib.util import find_spec

for _name in ("pyspark", "pyarrow"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            f"publishers.spark needs {_name}: pip install 'penstock-cdc[spark]'", name=_name
        )
