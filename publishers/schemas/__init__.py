"""Which schemas a log holds, and by which one each change was written."""
