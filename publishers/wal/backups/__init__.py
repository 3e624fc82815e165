"""Copies of a log, made while its writer runs: into a backup, and from a backup into a directory for writing.

**A backup** is a directory with segments and indexes, SCHEMAS with its copy, and a HEAD that covers exactly the copied data. It
holds visible versions only, so no opening of it can show a withheld one. It has a LOCK only while it is written, and never TAIL,
BELL, RESERVE, readers or links.

**Links.** A closed segment is never written again, so a backup may share it by a hard link. Two segments are always copies: the
last one, because an opening of the backup for writing appends to it, and the last one of the previous backup, because it may be
truncated (see 1).

**The order of the writes** makes the target a valid backup at every moment, or a directory without HEAD, which is not a log:

1. HEAD of the previous backup gets the flag CUT with its end. Until step 4 an opening for writing truncates the log there, so it
   never writes into a shared segment.
2. The last segment, then the others from the oldest on. A segment gets its name when it is complete and synced.
3. The indexes, SCHEMAS, PLACES (the positions of slots, whose content the caller gives), and a sync of the directory.
4. HEAD, by rename.

A repeated backup compares the existing segments instead of copying them. A target that does not fit is refused unchanged.
"""

from publishers.wal.backups.copy import Copied, copy_log
from publishers.wal.backups.restore import check_backup, make_room
from publishers.wal.files.directory import PLACES_NAME

__all__ = ["PLACES_NAME", "Copied", "check_backup", "copy_log", "make_room"]
