"""Shapes of definitions: very many at once, over HTTP and by the command line, and back.

What comes in: a rig with HTTP. What goes out: DEFINITION_SHAPES by name, and the environment that their broker needs.
Rules: 1. Reading the text of a file is not in these figures where it holds the interpreter in another thread: that
nothing long is parsed in one go is shown by `tests/definitions/test_pieces.py`.
Not here: shapes of messages (`shapes.py`).
"""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
from collections.abc import Callable

from tests.clients.broker_process import REPOSITORY, free_port
from tests.stalls.rig import Rig

QUEUES = 20_000
QUEUES_OF_A_COMMAND = 60_000
_PORT = "AMQPD_HTTP_PORT"
_GUEST = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def environment() -> dict[str, str]:
    return {"AMQPD_HTTP_ENABLED": "true", _PORT: str(free_port())}


def _file(queues: int) -> bytes:
    things = [
        {"name": f"defined-{number}", "vhost": "/", "durable": True, "arguments": {"x-max-length": number}}
        for number in range(queues)
    ]
    return json.dumps({"rabbit_version": "4.2.0", "queues": things}).encode()


def _asked(rig: Rig, method: str, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(rig.environment[_PORT]), timeout=600)
    try:
        connection.request(method, path, body, _GUEST)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _begun(rig: Rig) -> None:
    """What is imported and made once is not in the figures."""
    assert _asked(rig, "POST", "/api/definitions", b"{}") == 204
    assert _asked(rig, "GET", "/api/definitions") == 200
    rig.figures.clear()


def a_definitions_file_over_http(rig: Rig) -> None:
    """Taken in, given out, and taken in again, when all of it is there."""
    _begun(rig)
    text = _file(QUEUES)
    assert _asked(rig, "POST", "/api/definitions", text) == 204
    assert _asked(rig, "GET", "/api/definitions") == 200
    assert _asked(rig, "POST", "/api/definitions", text) == 204


def a_definitions_file_by_the_command_line(rig: Rig) -> None:
    _begun(rig)
    file = rig.directory / "definitions.json"
    file.write_bytes(_file(QUEUES_OF_A_COMMAND))
    command = [sys.executable, "-m", "amqpd", "definitions", "import", str(file)]
    command += ["--data-dir", str(rig.broker.data_dir)]
    environment = rig.broker.child_environment()
    subprocess.run(command, check=True, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL)
    assert _asked(rig, "GET", "/api/definitions") == 200


DEFINITION_SHAPES: dict[str, Callable[[Rig], None]] = {
    shape.__name__: shape for shape in (a_definitions_file_over_http, a_definitions_file_by_the_command_line)
}
