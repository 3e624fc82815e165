"""Copies of a log that are made beside its writer: to a backup, and from one back to a directory that can be written.

**A backup** is a directory with the files of a log and nothing else: segments and indexes, SCHEMAS with its copy, and a
HEAD that vouches exactly for what was copied. It holds what the log shows, never more: what is withheld stays out, so no
opening of a backup can show it. It has no LOCK (but while it is being made), TAIL, BELL, RESERVE, readers or links.

**Links.** A closed segment is never written in place again, so a backup may share it by a hard link. Two segments are always
copies: the one that HEAD of the backup ends in, because who opens the backup for writing goes on in it, and the one in which
the backup before has ended, because it may be cut there (see below).

**The order of the writes** makes the target a backup at every moment, or a directory without HEAD, which is no log yet:

1. HEAD of the backup before gets CUT with the place that it ends at: until the end an opening for writing would drop what
   lies behind. So nobody ever writes into a segment that is shared, whenever the copying ends.
2. The last segment, then the others from the oldest on, each under its own name only when it is whole and synced.
3. The indexes, SCHEMAS, and a sync of the directory.
4. HEAD, by rename.

Run again, segments that are there are compared, not copied. What does not fit is refused before anything is changed.
"""

from publishers.wal.backups.copy import Copied, copy_log
from publishers.wal.backups.restore import check_backup, make_room

__all__ = ["Copied", "check_backup", "copy_log", "make_room"]
