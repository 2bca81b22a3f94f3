"""The control socket: how `amqpd user`, `vhost` and `permission` reach a running broker.

What comes in: on `control.sock` in the data directory, one JSON object a line: {"command": NAME, "arguments":
{...}}. What goes out: one line for each, {"ok": true, "result": {...}} or {"ok": false, "error": SENTENCE}.
Rules: 1. Who may write the data directory may command the broker: the socket is 0600 in a directory of 0700,
there is no other check. 2. Lines, connections and idle time are bounded. 3. A handler refuses by raising
`ControlError`; any other exception is a bug of ours: it is logged with its traceback, answered, and the
broker goes on.
Not here: the commands (`commands/`), who is running (`datadir.py` holds the lock).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.errors import NodeFailure

SOCKET_NAME = "control.sock"
# A line holds one command or its answer; the longest answer is a list of all users, some 100 bytes each.
LINE_BYTES_MAX = 4 << 20
# People and scripts: a few at a time. More wait in the backlog.
CONNECTIONS_MAX = 16
# A command is sent at once; who says nothing for so long is gone or stuck, and would hold one of the 16
# places.
IDLE_TIMEOUT_S = 10.0
# sockaddr_un.sun_path is 108 bytes on Linux, 104 on the BSDs and macOS, with the final NUL.
PATH_BYTES_MAX = 103

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

log = structlog.get_logger(room="control")


class ControlError(Exception):
    """A command was refused, or could not be sent: one sentence for the one who gave it."""


def call(
    data_dir: Path, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
) -> dict[str, Any] | None:
    """Asks the broker that runs on `data_dir`; blocking, for the command line.

    Returns the handler's result, or None when no broker listens there. Raises ControlError when the broker
    refuses, or does not answer within `timeout_s` seconds (it may have carried out the command all the
    same)."""
    line = json.dumps({"command": command, "arguments": dict(arguments or {})}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, short_path(data_dir) as path:
        client.settimeout(timeout_s)
        try:
            client.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return None
        except OSError as error:
            raise ControlError(
                f"cannot talk to the broker on {data_dir}: {error.strerror or error}; "
                "run this as the user that runs it"
            ) from None
        try:
            client.sendall(line)
            answer = _read_answer(client)
        except TimeoutError:
            raise ControlError(
                f"the broker on {data_dir} did not answer within {timeout_s:g} s: "
                "look at its log, and whether it was done"
            ) from None
        except OSError as error:
            raise ControlError(
                f"lost the broker on {data_dir} during the command "
                f"({error.strerror or error}): look whether it was done"
            ) from None
    if not answer["ok"]:
        raise ControlError(str(answer["error"]))
    result: dict[str, Any] = answer["result"]
    return result


def _read_answer(client: socket.socket) -> dict[str, Any]:
    received = bytearray()
    while not received.endswith(b"\n"):
        piece = client.recv(65536)
        if not piece:
            raise ConnectionResetError("the connection ended before the answer")
        received += piece
        if len(received) > LINE_BYTES_MAX:
            raise ControlError(f"the broker's answer is longer than {LINE_BYTES_MAX} bytes")
    answer: dict[str, Any] = json.loads(received)
    return answer


@contextlib.contextmanager
def short_path(data_dir: Path) -> Iterator[str]:
    """The path of the control socket, short enough for a socket address, while the context lasts.

    The limit is on the text, not on the file: for a deep data directory a symbolic link in a private
    temporary directory leads there. It is needed only for bind and connect, so nothing has to be written down
    or found again."""
    path = data_dir.absolute() / SOCKET_NAME
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="amqpd-") as directory:
        link = Path(directory) / "d"
        link.symlink_to(data_dir.absolute(), target_is_directory=True)
        yield str(link / SOCKET_NAME)


class ControlServer:
    """Answers commands while `run` runs. The data directory's lock must be held: a socket that a dead broker
    left is replaced.

    `handlers` maps a command's name to an async function from its arguments to its result (both JSON
    objects)."""

    def __init__(self, data_dir: Path, handlers: Mapping[str, Handler]) -> None:
        self._data_dir = data_dir
        self._handlers = dict(handlers)
        self._connections = 0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accepts until cancelled; started when commands are accepted. Removes the socket at its end."""
        file = self._data_dir / SOCKET_NAME
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listener:
            file.unlink(missing_ok=True)
            with short_path(self._data_dir) as path:
                await listener.bind(path)
            try:
                file.chmod(0o600)
                listener.listen(CONNECTIONS_MAX)
                async with trio.open_nursery() as nursery:
                    # serve_listeners waits out a lack of descriptors instead of failing.
                    await nursery.start(trio.serve_listeners, self._serve, [trio.SocketListener(listener)])
                    task_status.started()
            finally:
                file.unlink(missing_ok=True)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._connections += 1
        try:
            if self._connections > CONNECTIONS_MAX:
                await _send(stream, _refusal(f"more than {CONNECTIONS_MAX} control connections: try again"))
                return
            received = bytearray()
            while True:
                with trio.fail_after(IDLE_TIMEOUT_S):
                    line = await _receive_line(stream, received)
                if line is None:
                    return
                await _send(stream, await self._answer(line))
        except (trio.BrokenResourceError, trio.TooSlowError, ControlError) as error:
            log.info("control connection dropped", reason=str(error) or type(error).__name__)
        finally:
            self._connections -= 1

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command, arguments = request["command"], request.get("arguments", {})
            if not isinstance(command, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {
                "ok": False,
                "error": 'a command is one JSON object: {"command": NAME, "arguments": {...}}',
            }
        handler = self._handlers.get(command)
        if handler is None:
            return _refusal(f"unknown command {command!r}")
        try:
            return {"ok": True, "result": await handler(arguments)}
        except ControlError as error:
            return _refusal(str(error))
        except NodeFailure:
            raise
        except Exception:
            log.exception("control command failed", command=command)
            return _refusal(f"{command} failed inside the broker: see its log")


def _refusal(sentence: str) -> dict[str, Any]:
    return {"ok": False, "error": sentence}


async def _send(stream: trio.SocketStream, answer: dict[str, Any]) -> None:
    with trio.fail_after(IDLE_TIMEOUT_S):
        await stream.send_all(json.dumps(answer).encode() + b"\n")


async def _receive_line(stream: trio.SocketStream, received: bytearray) -> bytes | None:
    """The next line without its end; None when the client is done. What was read beyond stays in
    `received`."""
    searched = 0
    while (end := received.find(b"\n", searched)) < 0:
        if len(received) > LINE_BYTES_MAX:
            raise ControlError(f"a line of more than {LINE_BYTES_MAX} bytes")
        searched = len(received)
        piece = await stream.receive_some(65536)
        if not piece:
            return None
        received += piece
    line = bytes(received[:end])
    del received[: end + 1]
    return line
