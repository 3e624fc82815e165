"""The Redis protocol on the command line."""

import signal

import pytest
import redis

from tests.transports.cli.test_tls import start


def test_an_operator_serves_the_redis_protocol_beside_the_other_port(log, fill, tmp_path):
    """F133: with the tokens of the other port."""
    fill(3)
    tokens = tmp_path / "tokens"
    tokens.write_text("ann:secret\n")
    with start("serve", log.path, "--port", "0", "--resp", "0", "--token-file", tokens) as server:
        assert "ws://" in server.stdout.readline()
        said = server.stdout.readline()
        assert said.startswith("serving the Redis protocol at redis://127.0.0.1:")
        port = int(said.rsplit(":", 1)[1])
        with redis.Redis(port=port, password="secret") as client:
            assert len(client.execute_command("CDCPOLL", 0, 10)) == 3
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.execute_command("CDCPOLL", 0, 10)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
