"""Random lives of several copies of one directory, and every place that was ever told in one of them.

Directories are copied, restored from older copies, wholly or in part, opened and killed; their owners commit, withhold, show,
forget, roll and prune; others follow them; the power goes. In some lives all began in format 1. After each step every token
that anybody was ever told is judged in every copy, by its owner and by those who follow it:

* it is accepted exactly where all that stands before its position is the same history, is kept, and is visible (one of
  format 1 may be refused where its epoch is unknown, and is in doubt where a repair has given up a part of the log);
* `PositionForked` with an end is right about it: everything before the end is common;
* `PositionAhead` is said only where what is visible is a beginning of the token's history, or a follower has not heard of
  its epoch;
* ids of changes are equal in two copies exactly where the change and all before it are the same, unless format 1 wrote both;
* what was shown since the machine was started is there after each opening for writing, or the opening says that it is not.

What stands before a position is known here by a digest of all bodies up to it; every body is given once.
"""

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from struct import unpack_from

from publishers.errors import (
    HistoryPruned,
    LogFull,
    PositionAhead,
    PositionForeign,
    PositionForked,
    WalCorrupted,
)
from publishers.log.lineage import Lineage
from publishers.model.position import Position, PositionToken
from publishers.options import LogOptions
from publishers.wal import Follower, Wal
from publishers.wal.checks import repair
from publishers.wal.files.segment import segment_number
from publishers.wal.files.tail_page import TAIL_NAME
from tests.publishers.wal.logs import sealed
from tests.simulation import format1
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem
from tests.simulation.medium import Inode
from tests.simulation.workload import Clock

__all__ = ["run"]

NAMES = ("a", "b", "c")
MOST_TOKENS = 60
FIRST = Path("/a")


def recorded(tail: bytes | None) -> int:
    """The visible version in the bytes of a TAIL, which may be older than the log; 0 if none was written, or it is being changed."""
    counter, _, visible = unpack_from("<QQQ", tail) if tail else (1, 0, 0)
    return 0 if counter & 1 else visible


@dataclass
class Told:
    """A token, and what stands before its position.

    Attributes:
        text: As a client kept it.
        before: Digests of the history that it was told in, from that of nothing up to that of everything before it.
    """

    text: str
    before: tuple[bytes, ...]


@dataclass
class Copy:
    """One directory.

    Attributes:
        path: Where it is.
        history: Digests of every version that was ever written in it and may still be there, after that of nothing.
        log: Its owner, if it is open.
        follower: Somebody who reads it, perhaps without an owner.
        shown: The newest version that TAIL has told of in this boot.
        odd: Whether it was put together of files of several copies, so that it need not open.
        mended: Whether a repair has given up a part of it: openings of format 1 that were in it are told from no others.
    """

    path: Path
    history: list[bytes] = field(default_factory=lambda: [b""])
    log: Wal | None = None
    follower: Follower | None = None
    shown: int = 0
    odd: bool = False
    mended: bool = False


@dataclass
class Saved:
    """A backup."""

    files: dict[str, bytes]
    history: list[bytes]
    shown: int
    boot: int
    odd: bool
    mended: bool


class Lives:
    """One seed."""

    def __init__(self, seed: int, trace: list[str] | None) -> None:
        self.rng = random.Random(seed)
        self.system = SimulatedFileSystem(seed ^ 0xF144)
        self.system.make_directory(FIRST)
        self.clock = Clock()
        self.trace = trace
        self.copies = [Copy(FIRST)]
        self.saved: list[Saved] = []
        self.told: list[Told] = []
        self.bodies = count()
        self.accepted = self.refused = self.reported = 0
        self.options = LogOptions(
            fill_step=self.rng.choice([0, 700]),
            head_sync=self.rng.choice([0.0, 1.0]),
            sync=self.rng.choice(["always", "always", "os"]),
            retain_bytes=self.rng.choice([0, 3000, None]),
            retain_age=None,
            reserve_bytes=0,
        )
        object.__setattr__(self.options, "segment_bytes", self.rng.choice([1024, 2048, 8192]))

    def run(self) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            with format1.written():
                for _ in range(rng.randint(1, 3)):
                    self.live(self.copies[0], old=True)
                    self.saved.append(self.backup(self.copies[0]))
        for _ in range(rng.randint(6, 16)):
            try:
                self.step()
            except PowerCut:
                self.note("power cut, or kill")
                self.die(power=rng.random() < 0.6)
            self.judge()

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(what)

    # --- what happens ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        one = rng.choice(self.copies)
        self.system.faults = {}
        if rng.random() < 0.3:
            self.system.faults[self.system.operations + rng.randint(1, 40)] = "crash"
        roll = rng.random()
        if roll < 0.5:
            self.live(one)
        elif roll < 0.6:
            self.saved.append(self.backup(one))
        elif roll < 0.75:
            self.spread(rng.choice([*self.saved, self.backup(one)]))
        elif roll < 0.88 and self.saved:
            self.restore(one, rng.choice(self.saved))
        else:
            self.follow(one)

    def live(self, one: Copy, *, old: bool = False) -> None:
        """Some time with an owner, who may stay."""
        rng = self.rng
        if one.log is None:
            self.open(one)
        log = one.log
        if log is None:
            return
        for _ in range(rng.randint(1, 6)):
            self.clock.now += rng.randint(1, 1_000_000)
            roll = rng.random()
            if roll < 0.6:
                self.commit(one, log)
            elif roll < 0.7:
                log.maintain(rng.choice([None, None, max(log.visible - 2, 1)]))
            elif roll < 0.8:
                self.withhold(one, log)
            else:
                self.tell(one, log, old=old)
        self.tell(one, log, old=old)
        if old or rng.random() < 0.5:
            self.note(f"close {one.path}")
            one.log = None
            (log.close if rng.random() < 0.6 else log.abandon)()
            one.shown = max(one.shown, log.visible)

    def open(self, one: Copy) -> None:
        """An opening for writing; what is missing must be reported, and is then given up, or the files are put right."""
        self.note(f"open {one.path}")
        try:
            log = Wal.open(one.path, self.options, filesystem=self.system, clock=self.clock)
        except WalCorrupted as error:
            if not one.odd:
                raise
            self.reported += 1
            self.note(f"  {error}")
            one.shown = 0  # which a repair gives up
            one.mended = True
            if repair(one.path, write=True, filesystem=self.system).refused is not None:
                self.system.unlink(one.path / "HEAD")
                with suppress(FileNotFoundError):
                    self.system.unlink(one.path / TAIL_NAME)
                repair(one.path, write=True, filesystem=self.system)
            log = Wal.open(one.path, self.options, filesystem=self.system, clock=self.clock)
        assert log.appended >= one.shown, f"{one.path} has {log.appended} of {one.shown} that were shown"
        assert log.appended < len(one.history), f"{one.path} has {log.appended} of {len(one.history) - 1}"
        del one.history[log.appended + 1 :]
        one.log, one.odd = log, False
        one.shown = log.visible

    def commit(self, one: Copy, log: Wal) -> None:
        body = b"%06d" % next(self.bodies) * self.rng.choice([1, 1, 50, 100])
        del one.history[log.appended + 1 :]
        one.history.append(blake2b(one.history[-1] + body, digest_size=16).digest())
        try:
            log.append([sealed(body)])
        except LogFull:
            one.history.pop()
            return
        if self.options.sync == "os" and self.rng.random() < 0.7:
            log.publish_tail(log.visible)
        elif self.options.sync != "os" or self.rng.random() < 0.3:
            log.sync()
            log.publish_tail(log.visible)
        one.shown = max(one.shown, log.visible)

    def withhold(self, one: Copy, log: Wal) -> None:
        rng = self.rng
        if not log.withholding:
            log.show(log.visible)
            for _ in range(rng.randint(1, 3)):
                self.commit(one, log)
            # Who committed it may keep its place, whatever becomes of it.
            self.keep(Lineage(log), Position(log.appended + 1), one)
        elif rng.random() < 0.5 and log.visible < log.appended:
            kept = rng.randint(log.visible, log.appended - 1)
            self.note(f"forget {one.path} after {kept} of {log.appended}")
            log.forget_after(kept)
            del one.history[kept + 1 :]
        else:
            log.show(None)
            log.publish_tail(log.visible)
        one.shown = max(one.shown, log.visible)

    def follow(self, one: Copy) -> None:
        if one.odd:
            return
        if one.follower is None:
            with suppress(Exception):  # its creation, or a cut, was never finished
                one.follower = Follower.open(one.path, filesystem=self.system)
                self.note(f"follow {one.path}")
        elif self.rng.random() < 0.6:
            one.follower.refresh()
            self.note(f"refresh {one.path}")
        else:
            one.follower.close()
            one.follower = None
        if one.follower is not None and one.follower.visible:
            self.tell(one, one.follower)

    def die(self, *, power: bool) -> None:
        """The machine, or every process on it."""
        self.system.faults = {}
        for one in self.copies:
            one.log = one.follower = None
            if power:
                one.shown = 0
        if power:
            self.system.power_cut()
        else:
            self.system.kill()

    # --- copies ------------------------------------------------------------------------------------------------------------

    def backup(self, one: Copy) -> Saved:
        self.note(f"copy {one.path}")
        files = self.system.snapshot(one.path)
        return Saved(files, list(one.history), one.shown, self.system.boot, one.odd, one.mended)

    def spread(self, saved: Saved) -> None:
        """A copy in a directory of its own."""
        if len(self.copies) == len(NAMES) or "HEAD" not in saved.files:
            return
        one = Copy(Path("/" + NAMES[len(self.copies)]))
        self.system.make_directory(one.path)
        self.copies.append(one)
        self.put(one, saved, saved.files)

    def restore(self, one: Copy, saved: Saved) -> None:
        """A backup in the place of a log; some of it, and some of what was there, if somebody is careless."""
        rng = self.rng
        if one.log is not None:
            one.log.abandon()
            one.log = None
        if one.follower is not None:
            one.follower.close()
            one.follower = None
        if "HEAD" not in saved.files:
            return
        roll = rng.random()
        files = self.system.snapshot(one.path)
        if roll < 0.45:
            self.put(one, saved, {name: data for name, data in saved.files.items() if name != TAIL_NAME})
            self.note(f"  restored {one.path}")
        elif roll < 0.85:
            # All that makes the log, but what TAIL tells is that of the log that was there.
            shown = min(one.shown, recorded(files.get(TAIL_NAME)))
            kept = {TAIL_NAME: files[TAIL_NAME]} if TAIL_NAME in files else {}
            self.put(one, saved, {**saved.files, **kept})
            one.shown, one.odd = (shown if kept else one.shown), bool(kept) or saved.odd
            self.note(f"  restored {one.path} under its TAIL of {one.shown}")
        else:
            mixed = {**files, "HEAD": saved.files["HEAD"]}
            if any(segment_number(name) for name in mixed):
                self.put(
                    one,
                    Saved(mixed, one.history, one.shown, self.system.boot, odd=True, mended=one.mended),
                    mixed,
                )
                self.note(f"  HEAD of a backup in {one.path}")

    def put(self, one: Copy, saved: Saved, files: Mapping[str, bytes]) -> None:
        names = {name: Inode(bytearray(data), bytearray(data)) for name, data in files.items()}
        self.system._names[str(one.path)] = names
        self.system._durable[str(one.path)] = dict(names)
        self.system._pending[str(one.path)] = []
        one.history = list(saved.history)
        one.odd, one.mended = saved.odd, saved.mended
        one.shown = saved.shown if TAIL_NAME in files and saved.boot == self.system.boot else 0

    # --- places ------------------------------------------------------------------------------------------------------------

    def tell(self, one: Copy, log: Wal | Follower, *, old: bool = False) -> None:
        head, oldest = log.visible + 1, log.reader.oldest
        version = self.rng.choice([head, head, self.rng.randint(min(oldest, head), head)])
        position = Position(version, self.rng.choice([0, 1]) if version < head else 0)
        if old:
            # A token of format 1 names the epoch that wrote its version, or would: at the head the one that is open.
            epoch = log.epoch
            for known in log.epochs:
                if known.first_version <= version:
                    epoch = known.epoch
            self.keep(PositionToken(log.log_id, epoch, position), position, one)
        else:
            self.keep(Lineage(log), position, one)

    def keep(self, whose: Lineage | PositionToken, position: Position, one: Copy) -> None:
        token = whose.token(position) if isinstance(whose, Lineage) else whose
        assert len(str(token)) < 96
        needed = position.version + bool(position.index)
        self.note(f"  told {one.path} {position} {str(token)[33:]}")
        self.told.append(Told(str(token), tuple(one.history[:needed])))
        if len(self.told) > MOST_TOKENS:
            del self.told[self.rng.randrange(len(self.told))]

    def judge(self) -> None:
        """Every token by everybody who has a log open."""
        self.system.faults = {}
        views: list[tuple[Copy, Wal | Follower]] = []
        for one in self.copies:
            views += [(one, log) for log in (one.log, one.follower) if log is not None]
        for one, log in views:
            for told in self.told:
                self.judged(one, log, told)
        for at, (one, log) in enumerate(views):
            for other, view in views[at + 1 :]:
                self.compare(one, log, other, view)

    def judged(self, one: Copy, log: Wal | Follower, told: Told) -> None:
        token = PositionToken.parse(told.text)
        position, needed = token.position, len(told.before) - 1
        oldest, head = Position(log.reader.oldest), Position(log.visible + 1)
        seen = one.history[: log.visible + 1]
        same = needed < len(seen) and seen[needed] == told.before[-1]
        what = f"{told.text[33:]} in {one.path}, {type(log).__name__} of {oldest} to {head}, {log.epochs}"
        error: Exception | None = None
        try:
            assert Lineage(log).judge(token, oldest, head) == position
        except (HistoryPruned, PositionForked, PositionAhead) as raised:
            error = raised
        except PositionForeign:
            # The copy of a creation that was not complete becomes a log of its own.
            assert token.log_id != log.log_id, what
            self.refused += 1
            return
        doubtful = one.mended and not token.random
        if error is None:
            assert same or doubtful, f"believed: {what}"
            self.accepted += 1
            return
        self.refused += 1
        # At the head format 1 told the epoch that was open, of which a copy from before that opening has never heard.
        # Openings of format 1 that wrote nothing are in no table, but lie before the first of format 2.
        first = next((epoch.epoch for epoch in log.epochs if epoch.random), None)
        plain = log.epochs[-1].epoch if first is None else first - 1
        unknown = doubtful or (not token.random and token.epoch > plain)
        assert unknown or not (same and oldest <= position <= head), f"{type(error).__name__}: {what}"
        match error:
            case HistoryPruned():
                assert position < oldest, what
            case PositionForked(end=Position() as end) if not unknown:
                common = end.version - 1
                assert common < len(told.before), what
                assert one.history[common] == told.before[common], f"not common up to {end}: {what}"
            case PositionForked(end=Position()):
                pass  # the end of an epoch that is in doubt
            case PositionAhead():
                ours = seen == list(told.before[: len(seen)])
                # A follower may not have heard of it yet, unless its owner would know it by now.
                unheard = isinstance(log, Follower) and (one.log is None or token.epoch > one.log.epoch)
                assert ours or unheard, f"another history is ahead: {what}"
            case _:
                assert position >= oldest, what

    def compare(self, one: Copy, log: Wal | Follower, other: Copy, view: Wal | Follower) -> None:
        """Of versions that both have, ids of changes are equal exactly if the changes and all before them are."""
        last = min(log.visible, view.visible)
        first = max(log.reader.oldest, view.reader.oldest)
        if not first <= last:
            return
        for version in {first, last, self.rng.randint(first, last)}:
            ids = {Lineage(seen).change_id(Position(version, 1)) for seen in (log, view)}
            same = one.history[version] == other.history[version]
            told_apart = all("." in one_id for one_id in ids)  # not by the ids of format 1
            assert len(ids) == 1 if same else len(ids) == 2 or not told_apart, (
                f"version {version} of {one.path} and {other.path}: {ids}"
            )


def run(seed: int, trace: list[str] | None = None) -> Mapping[str, int]:
    lives = Lives(seed, trace)
    lives.run()
    return {"accepted": lives.accepted, "refused": lives.refused, "reported": lives.reported}
