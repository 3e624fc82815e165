"""Reading: the segments of a log, and their verified frames."""
