"""A PostgreSQL of Debian, in a directory of the test."""

import os
import pwd
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from tests.harness.missing import skip_without
from tests.servers.program import Program


class Postgres(Program):
    """A server with the role ``postgres`` and the database of that name, to which every local user may connect.

    Args:
        folder: For its data.
    """

    name = "PostgreSQL"
    left_over = ("is still in use",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: int(one.parent.name))
        if not found:
            skip_without("PostgreSQL (make servers installs it)")
        self._programs = found[-1]
        # Not below the directory of all tests, which each run of pytest closes to others than its user.
        place = Path(tempfile.mkdtemp(prefix="penstock-postgresql-"))
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        self._data = place / "data"
        self._other = (
            [] if os.getuid() else ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        )
        if self._other:  # PostgreSQL refuses to run as root
            owner = pwd.getpwnam("postgres")
            os.chown(place, owner.pw_uid, owner.pw_gid)
        assert shutil.which("setpriv") is not None or not self._other
        command = [*self._other, str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres"]
        command += ["-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"]
        subprocess.run(command, check=True, capture_output=True, cwd=place, timeout=120)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return self.through(self.port)

    def through(self, port: int) -> str:
        """The same by another port, such as that of a proxy."""
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def command(self) -> list[str]:
        """See `Program.command`."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",  # the path of a test is longer than a socket's may be
        }
        told = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [*self._other, str(self._programs / "postgres"), "-D", str(self._data), *told]

    def answers(self) -> bool:
        """See `Program.answers`."""
        import psycopg

        with psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)

    def stop(self) -> None:
        """At once and in good order: those who are connected are sent away."""
        import signal

        self._end(signal.SIGINT)
