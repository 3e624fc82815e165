import signal
import weakref
from contextlib import suppress

import pytest

from penstock_flights import command
from penstock_flights.command import main
from penstock_flights.files import sole_user
from tests.harness.constants import set_constant
from tests.harness.failing import failing
from transports.cli.program import main as penstock


@pytest.fixture(autouse=True)
def handlers():
    """Whatever happens, the handlers of signals are as before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    "arguments",
    [["--rows", "0"], ["--rows", "many"], ["--port", "70000"], ["--port", "-1"], ["--what"], ["more"]],
)
def test_wrong_arguments_are_refused_with_two_and_one_line(arguments, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("penstock demo: ")
    assert said.endswith(" (penstock demo --help tells more)\n")
    assert said.count("\n") == 1


def test_help_says_what_is_real_and_where_things_are_kept(capsys):
    assert penstock(["demo", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "are derived" in text
    assert "var/demo" in text


def test_a_missing_extra_is_one_line(monkeypatch, capsys):
    set_constant(monkeypatch, command, "_NEEDED", ("rich", "penstock_lacks_this"))
    assert main(["--headless"]) == 1
    said = capsys.readouterr().err
    assert said == "penstock demo: missing: penstock_lacks_this; pip install 'penstock-cdc[demo]'\n"


def test_a_second_demo_in_one_directory_is_one_line(tmp_path, capsys):
    with sole_user(tmp_path / "demo"):
        assert main(["--headless", "--dir", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("penstock demo: another demo runs in")
    assert said.count("\n") == 1


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["--headless", "--dir", str(tmp_path / "file" / "demo")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_what_fails_during_the_preparation_is_one_line(tmp_path, capsys, monkeypatch):

    failing(monkeypatch, command._Attempt, "_perform", OSError(28, "No space left on device"))
    assert main(["--headless", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "penstock demo: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_says_how_to_go_on(tmp_path, capsys, monkeypatch, number, code):
    monkeypatch.setattr(command._Attempt, "_perform", lambda _: signal.raise_signal(number))
    directory = tmp_path / "with blanks"
    assert main(["--headless", "--rows", "5", "--dir", str(directory)]) == code
    assert f"To go on: penstock demo --rows 5 --dir '{directory}'" in capsys.readouterr().out


class InterruptedRun:
    """A run that is interrupted while Python calls a finalizer, whose exceptions it tells and ignores."""

    def __init__(self, moment):
        self.moment, self.steps = moment, []

    def open(self):
        self._at("open")

    def follow(self, look):
        self._at("follow")
        look()
        self._at("end")
        return ()

    def _at(self, moment):
        self.steps.append(moment)
        if moment == self.moment:
            weakref.finalize(set(), signal.raise_signal, signal.SIGINT)


@pytest.mark.parametrize(
    ("moment", "steps"),
    [("open", ["open", "follow"]), ("follow", ["open", "follow"]), ("end", ["open", "follow", "end"])],
)
def test_an_interrupt_is_never_lost_whatever_it_meets(tmp_path, capsys, monkeypatch, moment, steps):
    run = InterruptedRun(moment)
    monkeypatch.setattr(command._Attempt, "_perform", lambda attempt: attempt._followed(run) and 0)
    assert main(["--headless", "--dir", str(tmp_path)]) == 130
    said = capsys.readouterr()
    assert "To go on: penstock demo" in said.out
    assert said.err == ""
    assert run.steps == steps


def test_an_interrupt_that_was_lost_before_the_run_ends_it_before_it_is_opened(tmp_path, monkeypatch, capsys):
    run = InterruptedRun(None)

    def lost(attempt):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return attempt._followed(run)

    monkeypatch.setattr(command._Attempt, "_perform", lost)
    assert main(["--headless", "--dir", str(tmp_path)]) == 130
    assert "To go on: penstock demo" in capsys.readouterr().out
    assert run.steps == []


def test_a_run_is_forgotten_as_a_whole(tmp_path):
    run = tmp_path / "run-5-abc"
    (run / "flights").mkdir(parents=True)
    (tmp_path / ".run-5-abc-17" / "checkpoint").mkdir(parents=True)  # of an earlier attempt that was killed
    (tmp_path / "run-6-abc").mkdir()
    command._forget(run)
    assert [path.name for path in tmp_path.iterdir()] == ["run-6-abc"]
    command._forget(run)
