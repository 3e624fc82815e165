"""The format of frames: bytes to values and back, without file access."""
