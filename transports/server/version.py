"""Which penstock this is."""

import importlib.metadata

__all__ = ["version"]


def version() -> str:
    """The installed version, or ``0`` where only the sources are."""
    try:
        return importlib.metadata.version("penstock-cdc")
    except importlib.metadata.PackageNotFoundError:
        return "0"
