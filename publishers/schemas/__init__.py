"""The registered schemas of a log, and the stamping of changes with their schema versions."""
