"""Writing: sealed transactions become frames of the active segment."""
