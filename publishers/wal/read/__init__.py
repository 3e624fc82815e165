"""Reading: the segments that there are, and their frames, verified."""
