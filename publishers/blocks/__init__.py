"""Blocks: frames of the log in memory, with everything that is derived from them once and shared."""
