"""The version of penstock."""

import importlib.metadata

__all__ = ["version"]


def version() -> str:
    """The installed version; ``0`` if only the sources are present."""
    try:
        return importlib.metadata.version("penstock-cdc")
    except importlib.metadata.PackageNotFoundError:
        return "0"
