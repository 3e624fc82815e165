"""``penstock policy check``, and a server that does what such a file says."""

import json
import signal

import pytest

from tests.transports.cli.test_program import one_line
from transports.cli import main

POLICY = """
[principals.ann]
token = "SECRET-ann"
roles = ["reader"]

[principals.bob]
token = "SECRET-bob"
roles = ["reader"]

[[grants]]
roles = ["reader"]
logs = ["shop"]
actions = ["READ", "OPERATE"]
criteria = [{ entity_types = ["{tenant}"] }, { entity_types = ["order"] }]
mask = { card = "***" }

[[grants]]
roles = ["reader"]
logs = ["shop"]
actions = ["READ", "OPERATE"]
mask = { card = "***" }
"""


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def test_a_sound_file_is_said_to_be_so_and_tells_what_it_grants(policy, capsys):
    """F140."""
    assert main(["policy", "check", str(policy)]) == 0
    assert "is sound, and names 2 principals" in capsys.readouterr().out
    assert main(["policy", "check", str(policy), "--as", "ann", "--log", "shop"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ann (reader) on shop:\n  READ: yes\n    sees content BODY")
    assert "WRITE: no" in said
    consuming = policy.with_name("consuming.toml")
    consuming.write_text(
        '[[grants]]\nroles = ["worker"]\nlogs = ["shop"]\nactions = ["CONSUME"]\nslots = ["{name}-*"]'
    )
    given = ["--as", "ann", "--role", "worker", "--log", "shop"]
    assert main(["policy", "check", str(consuming), *given]) == 0
    assert "CONSUME: yes\n    the slots ann-*\n    the groups of no name\n" in capsys.readouterr().out
    assert "SECRET" not in said
    given = ["--as", "eve", "--role", "reader", "--claim", "tenant=item", "--log", "shop", "--json"]
    assert main(["policy", "check", str(policy), *given]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["grants"]["READ"]["criteria"] == [{"entity_types": ["item"]}, {"entity_types": ["order"]}]
    assert told["grants"]["READ"]["view"]["mask"] == ["card"]
    assert main(["policy", "check", str(policy), "--as", "ann", "--log", "other"]) == 1
    assert "ann (reader) on other:\n  READ: no" in capsys.readouterr().out
    assert main(["policy", "check", str(policy), "--as", "eve", "--role", "x", "--log", "shop"]) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--as", "ann"], "--log is None, but must be given"),
        (["--log", "shop"], "--as is None, but must be given"),
        (["--as", "eve", "--log", "shop"], "--as is 'eve', but must be a principal of the file"),
        (["--as", "ann", "--log", "shop", "--claim", "x"], "--claim is 'x', but must be NAME=VALUE"),
    ],
)
def test_a_question_that_lacks_something_is_told_what(policy, capsys, given, says):
    """F140."""
    assert main(["policy", "check", str(policy), *given]) == 2
    assert says in one_line(capsys)


def test_what_a_claim_may_not_stand_for_is_told(policy, capsys):
    """F140: for each principal of the file, and for one that is asked about."""
    policy.write_text(
        POLICY.replace("principals.ann", "principals.ann-marie")
        + '[[grants]]\nroles = ["*"]\nlogs = ["shop"]\nactions = ["CONSUME"]\nslots = ["{name}-*"]'
    )
    told = (
        "[[grants]] 3 slots {name}-* is nothing for ann-marie: name is 'ann-marie', but '-' stands beside {name} "
        "in patterns for slots\n"
    )
    assert main(["policy", "check", str(policy)]) == 0
    assert capsys.readouterr().out.endswith(f"is sound, and names 2 principals\n{told}")
    assert main(["policy", "check", str(policy), "--as", "ann-marie", "--log", "shop"]) == 0
    assert capsys.readouterr().out.endswith(f"the slots of no name\n    the groups of no name\n{told}")
    assert main(["policy", "check", str(policy), "--as", "bob", "--log", "shop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfilled"] == []


def test_a_mistake_is_one_line(policy, capsys):
    """F140, F141."""
    policy.write_text(POLICY.replace("mask =", "masks ="))
    assert main(["policy", "check", str(policy)]) == 2
    said = one_line(capsys)
    assert "[[grants]] 1 key is 'masks'" in said
    assert "mask is near" in said


def test_a_server_does_what_the_file_says_and_what_it_says_later(start, log, fill, policy, capsys):
    """F140: a token that is taken away ends what runs with it; nothing that is broken changes anything."""
    fill(2)
    with start("serve", log.path, "--host", "0.0.0.0", "--port", "0", "--policy", policy) as server:
        url = next(part.rstrip(",") for part in server.stdout.readline().split() if "ws:" in part)
        url = url.replace("0.0.0.0", "127.0.0.1")
        tail = ["tail", url, "--since", "earliest", "--limit", "2"]
        assert main([*tail, "--token", "SECRET-ann"]) == 0
        assert main(tail) == 1
        assert main(["stats", url, "--token", "SECRET-bob"]) == 0
        capsys.readouterr()
        with start("tail", url, "--token", "SECRET-bob", "--since", "earliest") as reader:
            assert reader.stdout.readline()
            policy.write_text(POLICY.replace("SECRET-bob", "SECRET-other"))
            assert "token or certificate" in reader.communicate(timeout=60)[1]
            assert reader.returncode == 1
        policy.write_text("[grant]")
        server.send_signal(signal.SIGHUP)
        assert "grants is near; the previous version stays in force" in server.stderr.readline()
        assert main([*tail, "--token", "SECRET-ann"]) == 0
        policy.write_text(POLICY)
        server.send_signal(signal.SIGHUP)
        assert server.stdout.readline() == "read the policy for 2 principals again\n"
        assert main([*tail, "--token", "SECRET-bob"]) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert "SECRET" not in server.stderr.read() + server.stdout.read()


@pytest.mark.parametrize(
    "other", [["--token-file", "x"], ["--field", "x"], ["--mask", "x"], ["--own", "--writable"]]
)
def test_what_a_policy_says_is_said_nowhere_else(log, policy, capsys, other):
    """F140."""
    assert main(["serve", str(log.path), "--port", "0", "--policy", str(policy), *other]) == 2
    assert "left out with --policy, whose file says that" in one_line(capsys)
