"""What lies in a frame: bytes to values and back, without a file."""
