"""What one frame of the log is in memory, and what is made from it once for everybody."""
