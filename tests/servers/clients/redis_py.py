"""redis-py. Questions come as lines of JSON, each is answered by one; see ``node/lines.mjs``."""

import json
import sys
from typing import Any

import redis

told = json.loads(sys.argv[1])
options: dict[str, Any] = {"port": told["port"]}
if "ca" in told:
    options |= {"ssl": True, "ssl_ca_certs": told["ca"], "password": told["token"]}
if "timeout" in told:
    options["socket_timeout"] = told["timeout"]
client = redis.Redis(**options)


def fault(error: Exception) -> dict[str, str]:
    return {"error": str(error)}


def plain(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, Exception):
        return fault(reply)
    if isinstance(reply, dict):
        return {plain(name): plain(value) for name, value in reply.items()}
    return [plain(one) for one in reply] if isinstance(reply, list) else reply


def run(way: str, commands: list[list[Any]]) -> list[Any]:
    if way == "single":
        return [client.execute_command(*commands[0])]
    with client.pipeline(**({} if way == "multi" else {"transaction": False})) as pipeline:
        for words in commands:
            pipeline.execute_command(*words)
        return pipeline.execute(raise_on_error=False)


for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer: dict[str, Any] = {"replies": plain(run(asked["run"], asked["commands"]))}
    except redis.RedisError as error:
        answer = fault(error)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
