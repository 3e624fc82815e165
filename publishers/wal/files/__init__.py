"""The files of a log: HEAD, TAIL, segments, and small files that lie there twice."""
