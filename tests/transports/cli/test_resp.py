"""The Redis protocol on the command line."""

import signal
from urllib.request import Request, urlopen

import pytest
import redis


def test_an_operator_serves_the_redis_protocol_beside_the_other_port(start, log, fill, tmp_path):
    """F133: with the tokens of the other port."""
    fill(3)
    tokens = tmp_path / "tokens"
    tokens.write_text("ann:secret\n")
    with start("serve", log.path, "--port", "0", "--resp", "0", "--token-file", tokens) as server:
        address = next(part for part in server.stdout.readline().split() if "ws://" in part)
        http = address.rstrip(",").replace("ws://", "http://").removesuffix("/ws")
        said = server.stdout.readline()
        assert said.startswith("serving the Redis protocol at redis://127.0.0.1:")
        port = int(said.rsplit(":", 1)[1])
        with redis.Redis(port=port, password="secret") as client:
            assert len(client.execute_command("CDCPOLL", 0, 10)) == 3
        metrics = Request(f"{http}/metrics", headers={"authorization": "Bearer secret"})
        with urlopen(metrics, timeout=60) as answer:
            assert 'penstock_resp_commands_total{command="CDCPOLL"} 1.0' in answer.read().decode()
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.execute_command("CDCPOLL", 0, 10)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
