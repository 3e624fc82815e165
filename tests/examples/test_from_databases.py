"""The outbox and the polling query bring each change into the log once, wherever they are stopped."""

import contextlib
import sqlite3

import pytest

from publishers import ChangeLog, Content
from tests.examples.programs import example

outbox = example("outbox")
polling = example("polling_query")


class Killed(BaseException):
    pass


class Struck:
    """A database or log that is gone before or after its nth call."""

    def __init__(self, target, before, after):
        self.target, self.before, self.after = target, before, after

    def __getattr__(self, name):
        found = getattr(self.target, name)
        return self._struck(found) if name in ("commit", "execute") else found

    def _struck(self, call):
        def struck(*arguments, **options):
            self.before()
            result = call(*arguments, **options)
            self.after()
            return result

        return struck

    def __enter__(self):
        return self.target.__enter__()

    def __exit__(self, *failure):
        return self.target.__exit__(*failure)


class Place:
    """A database and a log, both opened anew whenever the process has died."""

    def __init__(self, path, tables):
        self.path = path
        with contextlib.closing(sqlite3.connect(path / "shop.db")) as db:
            db.executescript(tables)

    @contextlib.contextmanager
    def opened(self):
        with (
            contextlib.closing(sqlite3.connect(self.path / "shop.db")) as db,
            ChangeLog.open(self.path / "log", sync="os") as log,
        ):
            db.execute("PRAGMA synchronous = OFF")  # it is killed, and loses no power
            yield db, log

    def killed_at(self, step, move):
        """Dies around the given call, counted over both; tells whether there was one."""
        left = [step]

        def strike():
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with self.opened() as (db, log):
            try:
                move(Struck(db, strike, strike), Struck(log, strike, strike))
            except Killed:
                return True
            return False

    def told(self):
        with self.opened() as (_, log):
            changes = log.history(content=Content.BODY, limit=1000).changes
            return [(change.operation.name, change.key, change.body) for change in changes if change.index]


def test_a_polling_query_goes_on_where_the_log_says_it_was(tmp_path):
    place = Place(tmp_path, polling.TABLE)
    expected = []
    for step in range(100):
        with place.opened() as (db, _):
            polling.put_order(db, "42", f"{step}.00")
            polling.put_order(db, "43", "1.00", deleted=step % 2 == 1)
        expected.append(("UPSERT", "42", {"total": f"{step}.00"}))
        expected.append(("REMOVE", "43", None) if step % 2 else ("UPSERT", "43", {"total": "1.00"}))
        killed = place.killed_at(step, lambda db, log: polling.poll(db, log, 1))
        with place.opened() as (db, log):
            while polling.poll(db, log, 1):
                pass
        assert place.told() == expected
        if not killed:
            break
    assert step > 3


@pytest.mark.parametrize(
    ("module", "printed"),
    [
        (outbox, "UPSERT 42 {'total': '10.00'}\nUPSERT 42 {'total': '12.00'}\nREMOVE 42 None\n"),
        (polling, "UPSERT 42 {'total': '12.00'} 2\nREMOVE 42 None 3\n"),
    ],
    ids=["outbox", "polling query"],
)
def test_the_examples_print_what_came_into_the_log(module, printed, capsys):
    module.main()
    assert capsys.readouterr().out == printed
