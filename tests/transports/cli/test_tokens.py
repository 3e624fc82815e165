"""Tokens on the command line, of those who serve and of those who ask."""

import json
import signal
import urllib.request
from datetime import UTC, datetime

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import upsert
from tests.transports.cli.test_program import one_line
from transports import Credentials, Limits, Principal, serve
from transports.access.tokens import TokenFile, token_given
from transports.cli import main

TOKENS = """
# who may read
ann:secret-of-ann
bob : with:colons
"""


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return path


def health(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def test_a_file_of_tokens_lets_in_those_that_it_names_and_reads_itself_again(tokens):
    judge = TokenFile(tokens)
    assert len(judge) == 2
    given = ("secret-of-ann", "with:colons", "colons", "ann", "ann:secret-of-ann", "", None)
    found = [judge(Credentials(token)) for token in given]
    assert found == [Principal("ann"), Principal("bob"), *[None] * 5]
    tokens.write_text("eve:new")
    assert judge(Credentials("secret-of-ann"))
    judge.reload()
    assert [judge(Credentials("secret-of-ann")), judge(Credentials("new"))] == [None, Principal("eve")]
    tokens.write_text("eve:")
    with pytest.raises(InvalidOption, match="alice"):
        judge.reload()
    assert judge(Credentials("new"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "alice:her-token"),
        (b"just-a-token", "alice:her-token"),
        (b":nameless", "alice:her-token"),
        (b"ann:\xff", "UTF-8"),
        (b"ann:one\nbob:one", "no two names have one token"),
        (b"a:b\n" * 300_000, "at most 1048576 bytes"),
        (None, "No such file"),
    ],
)
def test_a_file_that_holds_no_tokens_is_refused_in_words_that_do_not_tell_what_it_holds(
    tmp_path, content, says
):
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidOption, match=says) as caught:
        TokenFile(path)
    assert "just-a-token" not in str(caught.value)
    assert "nameless" not in str(caught.value)


def test_a_command_sends_the_token_that_it_is_given_before_that_of_a_file_or_of_the_environment(
    tmp_path, monkeypatch
):
    path = tmp_path / "token"
    path.write_text("ann:from-a-file\n")
    monkeypatch.setenv("PENSTOCK_TOKEN", "from-the-environment")
    assert token_given("given", str(path)) == "given"
    assert token_given(None, str(path)) == "from-a-file"
    for line, token in (
        ("bare", "bare"),
        (":with:colons", "with:colons"),
        ("bob : with:colons", "with:colons"),
    ):
        path.write_text(f"{line}\n")
        assert token_given(None, str(path)) == token
    for given in ("ann:given", ":given"):
        assert token_given(given, None) == given, "what is given as it is, is sent as it is"
    for line in (":", "ann:"):
        path.write_text(line)
        with pytest.raises(InvalidOption, match="if it holds a colon"):
            token_given(None, str(path))
    assert token_given(None, None) == "from-the-environment"
    monkeypatch.delenv("PENSTOCK_TOKEN")
    assert token_given(None, None) is None
    path.write_text("one\ntwo\n")
    with pytest.raises(InvalidOption, match="one line"):
        token_given(None, str(path))


def test_an_operator_serves_with_a_token_file_and_changes_it_while_it_runs(
    start, log, fill, tokens, capsys, monkeypatch
):
    fill(2)
    with start("serve", log.path, "--port", "0", "--token-file", tokens) as server:
        url, health_url = (part.rstrip(",") for part in server.stdout.readline().split() if "://" in part)
        assert health(health_url) == {"status": "ok"}
        for command in (
            ["tail", url, "--since", "earliest", "--limit", "2"],
            ["stats", url],
            ["schema", url],
        ):
            assert main(command) == 1
            assert "token" in one_line(capsys)
            assert main([*command, "--token", "secret-of-ann"]) == 0
            monkeypatch.setenv("PENSTOCK_TOKEN", "with:colons")
            assert main(command) == 0
            monkeypatch.delenv("PENSTOCK_TOKEN")
            capsys.readouterr()
        tokens.write_text("ann:changed")
        server.send_signal(signal.SIGHUP)
        assert "tokens of 1 clients" in server.stdout.readline()
        assert main(["stats", url, "--token", "secret-of-ann"]) == 1
        assert main(["stats", url, "--token-file", str(tokens)]) == 0
        tokens.write_text("nonsense")
        server.send_signal(signal.SIGHUP)
        assert "stays in force" in server.stderr.readline()
        capsys.readouterr()
        assert main(["stats", url, "--token", "changed"]) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_listening_beyond_this_machine_needs_tokens_or_to_be_asked_for(start, log, capsys):
    assert main(["serve", str(log.path), "--host", "0.0.0.0", "--port", "0"]) == 2
    said = one_line(capsys)
    assert "--token-file" in said
    assert "--insecure" in said
    with start("serve", log.path, "--host", "0.0.0.0", "--port", "0", "--insecure") as server:
        assert "serving shop" in server.stdout.readline()
        assert "no client needs a token" in server.stderr.readline()


def test_a_command_that_prints_the_token_is_asked_before_each_connection(log, tmp_path, capsys):
    """E55: a connection whose token expires is followed by one with the next token."""
    given = []

    def judge(credentials):
        given.append(credentials.token)
        log.commit([upsert("order", str(len(given)), {})])
        return Principal("ann", expires=datetime.now(UTC).timestamp() + 0.05)

    program = tmp_path / "token.sh"
    program.write_text(f"echo x >> '{tmp_path}/asked'; wc -l < '{tmp_path}/asked'\n")
    with serve(log, authenticate=judge, limits=Limits(revocation=0.05)) as server:
        command = f"sh '{program}'"
        said = ["tail", server.url, "--since", "earliest", "--until", "3", "--token-command", command]
        assert main(said) == 0
        assert [int(token) for token in given[:3]] == [1, 2, 3]
        assert len(capsys.readouterr().out.splitlines()) == 6
        for wrong, says in (
            ("sh -c 'exit 3'", "exit status 3"),
            ("true", "prints one line"),
            ("printf 'a\\nb\\n'", "prints one line"),
            ("there-is-none", "No such file"),
            ("'", "no such line"),
        ):
            assert main(["stats", server.url, "--token-command", wrong]) == 2
            assert says in one_line(capsys)
        assert main(["stats", server.url, "--token-command", "true", "--token", "x"]) == 2
        assert "without --token" in one_line(capsys)
