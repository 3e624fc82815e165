"""The mutants, each a mistake that could be made: in what is written, in what is recovered, and in who is told of it."""

from tests.mutants.bounding import BOUNDING
from tests.mutants.delivering import DELIVERING
from tests.mutants.grouping import GROUPING, GROUPING_OFTEN
from tests.mutants.patching import Mutant

__all__ = ["MUTANTS", "SELECTION"]

_WAL = "publishers.wal."
_LIVES = ("T1",)
_SYNC = (_WAL + "append.writer:Writer.sync", "active.file.sync()")

_WRITING = [
    Mutant("no sync", *_SYNC, "pass", _LIVES),
    Mutant("sync of the wrong file", *_SYNC, "self._head._file.sync()", _LIVES),
    Mutant(
        "no directory sync",
        _WAL + "disk.filesystem:_sync_opened",
        "sync()",
        "pass",
        _LIVES,
    ),
    Mutant(
        "acknowledge before sync",
        _WAL + "append.writer:Writer.sync",
        "end = (active.number, offset)",
        "end = self.synced_end\n    self.synced = self.appended",
        _LIVES,
    ),
    Mutant(
        "sync retried after EIO",
        *_SYNC,
        "try:\n                active.file.sync()\n            except OSError:\n                active.file.sync()",
        _LIVES,
    ),
    Mutant("failed sync forgotten", _WAL + "append.writer:Writer.sync", "health.fail(error)", "pass", _LIVES),
    Mutant(
        "readable before sync",
        _WAL + "append.writer:Writer.append",
        "if self._os_durable:",
        "if True:",
        _LIVES,
    ),
    Mutant(
        "HEAD before sync",
        _WAL + "append.writer:Writer.evidence",
        "return Limit(version, *self.synced_end)",
        "return Limit(self.appended, self.active.number, self.active.offset)",
        _LIVES,
    ),
    Mutant(
        "segment not synced at roll",
        _WAL + "append.active_segment:ActiveSegment.finish",
        "sync_file(self.file)",
        "pass",
        _LIVES,
    ),
    Mutant(
        "segment named before its sync",
        _WAL + "append.active_segment:create_segment",
        "sync_file(spare.file)",
        "pass",
        _LIVES,
    ),
    Mutant(
        "name of a segment not synced",
        _WAL + "append.active_segment:create_segment",
        "sync()",
        "pass",
        _LIVES,
    ),
    Mutant(
        "producers forgotten at roll",
        _WAL + "append.writer:Writer._roll",
        "self.tables.encode()",
        "type(self.tables)().encode()",
        _LIVES,
    ),
    Mutant(
        "zeros over what was written",
        _WAL + "append.active_segment:ActiveSegment.put",
        "self.filled = max(self.filled, end)",
        "pass",
        _LIVES,
    ),
    Mutant(
        "failed write not taken back",
        _WAL + "append.active_segment:ActiveSegment.undo",
        "self.file.truncate(self.filled)\n        write_zeros(self.file, start, end)",
        "pass",
        ("T5", "T1"),
    ),
    Mutant(
        "what was taken back is not synced",
        _WAL + "append.active_segment:ActiveSegment.undo",
        "sync_file(self.file)",
        "pass",
        ("T5",),
    ),
    Mutant(
        "time goes back",
        _WAL + "append.appender:Appender._write_one",
        "max(self._clock(), self._committed_at + 1)",
        "self._clock()",
        _LIVES,
    ),
]

_HEAD = [
    Mutant(
        "HEAD restarts at slot 0",
        _WAL + "files.head:Head.__init__",
        "self.state: HeadState = state",
        "self.state: HeadState = state._replace(counter=0)",
        _LIVES,
    ),
    Mutant("HEAD in one slot", _WAL + "files.head:Head._put", "SLOTS[state.counter % 2]", "0", _LIVES),
    Mutant(
        "HEAD not written after recovery",
        _WAL + "recover.recovery:_Recovery.run",
        "self._head.write(epoch, version, last.number, end, visible=visible, random=random)",
        "pass",
        _LIVES,
    ),
    Mutant("HEAD not synced", _WAL + "files.head:Head._put", "    sync_file(self._file)", "    pass", _LIVES),
    Mutant(
        "DEFERRED not written",
        _WAL + "append.head_writer:HeadWriter.write",
        "visible=visible)",
        "visible=None)",
        ("T1-deferral",),
    ),
    Mutant(
        "CUT not written", _WAL + "withholding:Withholding._forget_after", "flags=CUT, ", "", ("T1-deferral",)
    ),
]

_RECOVERY = [
    Mutant(
        "LAST not required",
        _WAL + "format.frame:Scan.__iter__",
        "if header.flags & LAST or header.ends:",
        "if True:",
        _LIVES,
    ),
    Mutant(
        "torn rule ignores what was durable",
        _WAL + "recover.inspector:find_vouching",
        "version < header.durable <= header.version",
        "False",
        ("T3",),
    ),
    Mutant(
        "torn rule takes the unsynced for damage",
        _WAL + "recover.inspector:find_vouching",
        "version < header.durable",
        "0 <= header.durable",
        _LIVES,
    ),
    Mutant(
        "tail frames not written again",
        _WAL + "recover.recovery:_write_again",
        "write_all(file, data, at)",
        "pass",
        _LIVES,
    ),
    Mutant("recovery not synced", _WAL + "recover.recovery:_Recovery.run", "sync_file(file)", "pass", _LIVES),
    Mutant(
        "random bits not drawn anew",
        _WAL + "recover.recovery:_Recovery.run",
        "draw_random(filesystem)",
        "self._head.state.random or draw_random(filesystem)",
        _LIVES,
    ),
    Mutant("epoch not raised", _WAL + "recover.recovery:_Recovery.run", " else 0) + 1", " else 0)", _LIVES),
    Mutant(
        "producers not restored",
        _WAL + "recover.inspector:Replay._count",
        "self.tables.committed(frame.producer, state)",
        "pass",
        _LIVES,
    ),
    Mutant(
        "missing segment not noticed",
        _WAL + "recover.recovery:_Recovery._check_segments",
        "if number not in numbers:",
        "if False:",
        ("T4",),
    ),
    Mutant(
        "CUT not finished",
        _WAL + "recover.recovery:recover",
        "if head.state.flags & CUT:",
        "if False:",
        ("T1-deferral",),
    ),
    Mutant(
        "cut ends at its segment",
        _WAL + "recover.truncate:truncate",
        "file.truncate(min(offset, file.size()))",
        "pass",
        ("T1-deferral",),
    ),
]

_FRAMES_UNCHAINED = Mutant(
    "frames not chained",
    _WAL + "read.reader:Reader._frame",
    "if links.get((segment, offset), header.previous) != header.previous:",
    "if False:",
    ("T3-forks",),
)

_CHAIN = [
    Mutant(
        "neither frames nor segments chained",
        _WAL + "files.segment:Trailer.fits",
        "following.previous)",
        "self.last_crc)",
        ("T3-forks",),
        besides=(_FRAMES_UNCHAINED,),
    ),
]

_HISTORIES = ("histories",)

_LINEAGE = [
    Mutant(
        "epochs known by their number alone",
        "publishers.log.lineage:_knows",
        "(one.epoch, one.random) == (epoch, random)",
        "one.epoch == epoch",
        _HISTORIES,
    ),
    Mutant(
        "unknown epochs believed",
        "publishers.log.lineage:Lineage.judge",
        "raise PositionAhead(head) if behind else PositionForked(epoch, None)",
        "return position",
        _HISTORIES,
    ),
    Mutant(
        "end of an epoch off by one",
        "publishers.log.lineage:Lineage.judge",
        "Position(later.first_version)",
        "Position(later.first_version + 1)",
        _HISTORIES,
    ),
    Mutant(
        "a token names the epoch behind it",
        "publishers.log.lineage:_before",
        "position.version - 1",
        "position.version",
        _HISTORIES,
    ),
    Mutant(
        "plain tokens believed of every epoch",
        "publishers.log.lineage:_knows",
        "if one.random), newest if bits else newest + 1)",
        "if False), newest + 1)",
        _HISTORIES,
    ),
    Mutant(
        "a follower does not ask again",
        "publishers.log.lineage:Lineage.judge",
        "self._files.epochs_anew()",
        "(self._files.opening, epochs)",
        _HISTORIES,
    ),
    Mutant(
        "the epoch before the oldest version forgotten",
        _WAL + "format.control:ControlTables.prune",
        "epochs[1].first_version < oldest",
        "epochs[1].first_version <= oldest",
        _HISTORIES,
    ),
    Mutant(
        "random bits not in the checkpoint",
        _WAL + "format.control:ControlTables.encode",
        "for epoch in self.epochs)",
        "for epoch in (one._replace(random=0) for one in self.epochs))",
        _HISTORIES,
    ),
    Mutant(
        "TAIL not asked at an opening",
        _WAL + "recover.recovery:recover",
        "reserve, tail.read()).run(files)",
        "reserve, None).run(files)",
        _HISTORIES,
    ),
    Mutant(
        "TAIL not cleared by a repair",
        _WAL + "checks.repair:_Work._cut",
        "tail.clear()",
        "pass",
        _HISTORIES,
    ),
]

_RETENTION = [
    Mutant(
        "unlink before HEAD.oldest",
        _WAL + "keep.retention:Retention._delete",
        "        self._write_head(gone.stop)\n        self._catalog.drop(gone.stop)",
        "        self._catalog.drop(gone.stop)",
        _LIVES,
    ),
    Mutant(
        "places of holds not stored",
        _WAL + "keep.retention:Retention.step",
        "gone and self.holds.synchronise()",
        "gone",
        _LIVES,
    ),
    Mutant(
        "floor off by one",
        _WAL + "keep.retention:oldest_to_keep",
        "following.first_version > floor",
        "following.first_version > floor + 1",
        _LIVES,
        8000,
    ),
    Mutant(
        "floor not asked",
        _WAL + "keep.retention:oldest_to_keep",
        "floor is not None and",
        "False and",
        _LIVES,
    ),
    Mutant(
        "interrupted retention not finished",
        _WAL + "recover.recovery:_Recovery._drop_old",
        "number not in self._numbers",
        "not self._numbers",
        _LIVES,
    ),
]

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        *_WRITING,
        *_HEAD,
        *_RECOVERY,
        *_CHAIN,
        *_LINEAGE,
        *_RETENTION,
        *DELIVERING,
        *BOUNDING,
        *GROUPING,
    )
}

SELECTION = [
    "no sync",
    "no directory sync",
    "acknowledge before sync",
    "segment not synced at roll",
    "producers forgotten at roll",
    "HEAD restarts at slot 0",
    "CUT not written",
    "DEFERRED not written",
    "LAST not required",
    "torn rule ignores what was durable",
    "tail frames not written again",
    "failed write not taken back",
    "neither frames nor segments chained",
    "epochs known by their number alone",
    "a token names the epoch behind it",
    "TAIL not asked at an opening",
    "unlink before HEAD.oldest",
    "until off by one",
    "ring start not moved",
    "too large a chunk does not restart the ring",
    "eviction forgets to mark",
    "an attached ring covers what was never linked",
    # That a pool does not grow shows by waiting.
    *(f"group: {name}" for name in GROUPING_OFTEN),
    *(mutant.name for mutant in BOUNDING if mutant.name != "dispatch threads do not grow"),
]
"""Those of which a commit tries every second one; the others cost more seeds, or are of the same kind."""
