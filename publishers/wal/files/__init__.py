"""The files of a log: HEAD, TAIL, segments, and small mirrored files."""
