"""What another user of the machine can do with a log: prints it as JSON. Run as root, with who may read the log: owner, group or all.

This process has one thread, and forks each user: first the owner, who keeps the log open, then the others.
"""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import traceback
from multiprocessing import Pipe
from pathlib import Path
from uuid import UUID

from publishers import ChangeLog, Position, upsert
from publishers.backups import backup
from publishers.groups.inspection import examine_journals
from publishers.log.staging import Staged
from publishers.mutations.mutation import columns_of
from publishers.slots.inspection import stored_slots
from publishers.wal.checks import verify
from publishers.wal.disk.filesystem import RealFileSystem
from tests.harness.inside import following_of

OWNER, OTHER, GROUP, STRANGERS = 61001, 61002, 61003, 61004
QUICK = {"sync": "os", "segment_bytes": 65_536, "retain_bytes": None, "retain_age": None}


def as_user(user, group, work):
    """Runs work in a child process of another user; returns a pipe to it, and what waits for its result or the name of its error."""
    ours, theirs = Pipe()
    child = os.fork()
    if not child:
        try:
            os.umask(0o077)  # the modes of a log do not depend on it
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            try:
                theirs.send(work(theirs))
            except Exception as error:
                theirs.send(type(error).__name__)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    theirs.close()

    def result():
        try:
            return ours.recv()
        finally:
            os.waitpid(child, 0)

    return ours, result


def modes(path):
    return {str(one.relative_to(path)): f"{one.lstat().st_mode & 0o7777:o}" for one in path.rglob("*")}


def own(path, readers, other):
    with ChangeLog.open(path, readers=readers, state=True, **QUICK) as log:
        for number in range(200):
            log.commit([upsert("order", f"k{number}", {"text": "x" * 1_000})])
        log.slots.create("stock")
        log.groups.create("pickers")
        log.links.add("spark").chmod(0o777)
        made = modes(path) | {".": f"{path.stat().st_mode & 0o7777:o}"}
        path.chmod(path.stat().st_mode | 0o022 if readers != "owner" else 0o700)  # for those who stage

        def stage(staging):
            other.send(staging)
            part = other.recv()
            return Staged([] if isinstance(part, str) else [part], {})

        with contextlib.suppress(EOFError):
            made["staged"] = log.serving.commit_staged(stage).changes
        other.send("open")
        other.recv()
        return made


def rows():
    return [columns_of([upsert("order", "s", {})])]


def follow(path, _):
    with ChangeLog.open(path, read_only=True) as log:
        writer = log.health().writer
        count = len(log.history(None, limit=10_000).changes)
        return [count, writer.alive, writer.pid is not None, following_of(log)._listener.kind]


def consume(path, _):
    with ChangeLog.open(path, read_only=True, consumer="spark") as log:
        return [len(log.history(None, limit=10_000).changes), log.links.release(Position(150)) > 0]


def lock(path, _):
    with open(path / "LOCK") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return "locked"


def examine(path, _):
    report = verify(path)
    log_id = report.log_id and UUID(report.log_id)
    journals = examine_journals(RealFileSystem(), path, log_id) if log_id else []
    return [report.verdict.name, report.live, [f"{one.name} {one.verdict.name}" for one in journals]]


def slots(path, _):
    with ChangeLog.open(path, read_only=True) as log:
        return len(stored_slots(RealFileSystem(), path, log.log_id, log.position_of))


WORK = {"follow": follow, "consume": consume, "lock": lock, "verify": examine, "slots": slots}


def import_all(path):
    """Does all of it once: a user may not be allowed to read the modules of this interpreter."""
    with ChangeLog.open(path, state=True, **QUICK) as log:
        log.serving.commit_staged(lambda staging: Staged([staging.seal(rows(), "0", {})], {}))
        log.commit([upsert("order", "k", {})])
        log.slots.create("stock")
        log.groups.create("pickers")
        log.links.add("spark")
        for work in list(WORK.values())[:2]:
            work(path, None)
    for work in WORK.values():
        work(path, None)
    backup(path, path.with_name("warm-copy"))


def main(readers):
    root = Path(tempfile.mkdtemp(prefix="penstock-users-"))
    try:
        root.chmod(0o777)
        import_all(root / "warm")
        path = root / "log"
        group = STRANGERS if readers == "all" else GROUP
        owner, ended = as_user(OWNER, GROUP, lambda other: own(path, readers, other))
        told = {}
        staging = owner.recv()

        def other(name, work):
            _, result = as_user(OTHER, group, work)
            told[name] = result()

        _, sealed = as_user(OTHER, group, lambda _: staging.seal(rows(), "0", {}))
        part = sealed()
        told["stage"] = part if isinstance(part, str) else "sealed"
        owner.send(part)
        assert owner.recv() == "open"
        for name, work in WORK.items():
            other(name, lambda given, work=work: work(path, given))
        other("backup", lambda _: bool(backup(path, root / "copy")) and modes(root / "copy"))
        owner.send("close")
        told["modes"] = ended()
        other("followed", lambda given: follow(path, given))
        sys.stdout.write(json.dumps(told))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main(sys.argv[1])
