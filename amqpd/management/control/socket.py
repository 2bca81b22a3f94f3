"""The control socket: how `amqpd user`, `connection` and their like reach a running broker.

What comes in: on `control.sock` in the data directory, one JSON object a line: {"command": NAME, "arguments":
{...}}. What goes out: one line for each, {"ok": true, "result": {...}} or {"ok": false, "error": SENTENCE, "kind":
KIND}; before that, when the command is a listing, any number of lines {"ok": true, "rows": [...]}: no list is too
long for them.
Rules: 1. A user that may write the data directory may command the broker: the socket is 0600 in a directory of 0700,
there is no other check. 2. Lines, connections and idle time are bounded. 3. A refusal is a `ManagementError`, and
`call` and its like raise the same one (`errors.py` has the kinds).
Not here: how a command is answered (`answers.py`), the commands (`commands.py`), the command line
(`amqpd/commands/`), which process is running (`datadir/lock.py` holds the lock).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import tempfile
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.faults import ENDS_NODE
from amqpd.management.control.answers import Commands, refusal
from amqpd.management.control.remote import RemoteBroker
from amqpd.management.control.remote import answers as remote_answers
from amqpd.management.errors import Unavailable, of_kind
from amqpd.management.operators import Operator

SOCKET_NAME = "control.sock"
# A line holds one command, or its answer, or a page of it.
LINE_BYTES_MAX = 4 << 20
# People and scripts: a few at a time. More wait in the backlog.
CONNECTIONS_MAX = 16
# A command is sent at once; a client silent this long has gone or is stuck, and would hold one of the 16
# places.
IDLE_TIMEOUT_S = 10.0
# A broker that lives answers sooner, nearly always; after it is looked whether the process is stopped.
STOPPED_LOOK_S = 2.0
# At the end, for the socket's file to be removed, which takes a disk that works some microseconds.
REMOVE_S = 1.0
# sockaddr_un.sun_path is 108 bytes on Linux, 104 on the BSDs and macOS, with the final NUL.
PATH_BYTES_MAX = 103

Place = Path | RemoteBroker
"""of a broker: its data directory, or the address of its management API"""

# pid, uid, gid (unix(7), SO_PEERCRED).
_CREDENTIALS = struct.Struct("iII")

log = structlog.get_logger(component="control")


class ControlError(Unavailable):
    """A command could not be sent, or its answer could not be read."""


class BrokerLost(ControlError):
    """The broker ended, or did not answer, while it carried out the command."""


def call(
    data_dir: Place, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
) -> dict[str, Any] | None:
    """Asks the broker that runs on `data_dir`, or is there; blocking, for the command line.

    Returns the handler's result, or None when no broker listens there. Raises the ManagementError with which the
    broker refuses; ControlError when it does not answer within `timeout_s` seconds (it may have carried out the
    command all the same)."""
    with contextlib.closing(_answers(data_dir, command, arguments, timeout_s)) as answers:
        for answer in answers:
            result: dict[str, Any] = answer["result"]
            return result
    return None


def rows(
    data_dir: Place, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
) -> list[dict[str, Any]] | None:
    """The rows of a listing, all pages of it; otherwise as `call`. `timeout_s` is for each page."""
    found = listing(data_dir, command, arguments, timeout_s)
    return None if found is None else found[0]


def listing(
    data_dir: Place, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """As `rows`, and what is said of the rows as a whole."""
    found: list[dict[str, Any]] = []
    with contextlib.closing(_answers(data_dir, command, arguments, timeout_s)) as answers:
        for answer in answers:
            if "result" in answer:
                return found, answer["result"]
            found += answer["rows"]
    return None


def each_row(
    data_dir: Place, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
) -> Iterator[dict[str, Any]] | None:
    """As `rows`, one by one as they come: for answers that are larger than memory."""
    answers = _answers(data_dir, command, arguments, timeout_s)
    first = next(answers, None)
    return None if first is None else _rows_in(first, answers)


def _rows_in(
    answer: dict[str, Any] | None, answers: Generator[dict[str, Any], None, None]
) -> Iterator[dict[str, Any]]:
    with contextlib.closing(answers):
        while answer is not None and "result" not in answer:
            yield from answer["rows"]
            answer = next(answers, None)


def _answers(
    data_dir: Place, command: str, arguments: Mapping[str, Any] | None, timeout_s: float
) -> Generator[dict[str, Any], None, None]:
    """The lines of the answer, the last has "result"; none when no broker listens."""
    if isinstance(data_dir, RemoteBroker):
        yield from remote_answers(data_dir, command, arguments or {}, timeout_s)
        return
    line = json.dumps({"command": command, "arguments": dict(arguments or {})}).encode() + b"\n"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
        client.makefile("rb") as received,
        short_path(data_dir) as path,
    ):
        client.settimeout(timeout_s)
        try:
            client.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return
        except (BlockingIOError, TimeoutError):
            raise BrokerLost(
                f"the broker on {data_dir} takes no more commands, as many wait for it already: it is stopped "
                "(SIGSTOP), or stuck; look at its process and its log"
            ) from None
        except OSError as error:
            raise ControlError(
                f"cannot talk to the broker on {data_dir}: {error.strerror or error}; "
                "run this as the user that runs it"
            ) from None
        answer: dict[str, Any] = {}
        sent = False
        while "result" not in answer:
            try:
                if not sent:
                    client.sendall(line)
                    sent = True
                    _await_answer(client, data_dir, timeout_s)
                text = received.readline(LINE_BYTES_MAX + 1)
            except TimeoutError:
                raise BrokerLost(
                    f"the broker on {data_dir} did not answer within {timeout_s:g} s: "
                    "look at its log, and whether it was done"
                ) from None
            except OSError as error:
                raise _lost(data_dir, error.strerror or str(error)) from None
            if len(text) > LINE_BYTES_MAX:
                raise ControlError(f"the broker's answer is longer than {LINE_BYTES_MAX} bytes")
            if not text.endswith(b"\n"):
                raise _lost(data_dir, "the connection ended before the answer")
            answer = json.loads(text)
            if not answer["ok"]:
                raise of_kind(str(answer.get("kind", "")), str(answer["error"]))
            yield answer


def _await_answer(client: socket.socket, data_dir: Path, timeout_s: float) -> None:
    """Until something has come, or the time has passed, which reading it tells. Raises BrokerLost for a process that
    is stopped: nothing will come."""
    poll = select.poll()
    poll.register(client, select.POLLIN)
    look_s = min(STOPPED_LOOK_S, timeout_s)
    if poll.poll(look_s * 1000):
        return
    pid = _credentials(client)[0]
    if pid and _is_stopped(pid):
        raise BrokerLost(
            f"the broker on {data_dir}, process {pid}, is stopped (SIGSTOP, or a debugger): 'kill -CONT {pid}' lets "
            "it go on, and what it was asked now is done then"
        )
    poll.poll((timeout_s - look_s) * 1000)


def _is_stopped(pid: int) -> bool:
    import psutil  # 30 ms, for a command that waits anyway

    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _lost(data_dir: Path, reason: str) -> BrokerLost:
    return BrokerLost(f"lost the broker on {data_dir} during the command ({reason}): look whether it was done")


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
    left is replaced."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._connections = 0

    async def run(self, data_dir: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accepts until cancelled; started when commands are accepted. Removes the socket at its end."""
        file = data_dir / SOCKET_NAME
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listener:
            file.unlink(missing_ok=True)
            with short_path(data_dir) as path:
                await listener.bind(path)
            made = file.stat()
            try:
                file.chmod(0o600)
                listener.listen(CONNECTIONS_MAX)
                async with trio.open_nursery() as nursery:
                    # serve_listeners waits out a lack of descriptors instead of failing.
                    await nursery.start(trio.serve_listeners, self._serve, [trio.SocketListener(listener)])
                    task_status.started()
            finally:
                # Beside the loop: a disk that hangs must not keep the node from ending.
                with trio.move_on_after(REMOVE_S, shield=True):
                    await trio.to_thread.run_sync(_remove, file, made, abandon_on_cancel=True)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._connections += 1
        try:
            if self._connections > CONNECTIONS_MAX:
                busy = Unavailable(f"more than {CONNECTIONS_MAX} control connections: try again")
                await _send(stream, refusal(busy))
                return
            operator = Operator(uid=_credentials(stream.socket)[1])
            received = bytearray()
            while True:
                with trio.fail_after(IDLE_TIMEOUT_S):
                    line = await _receive_line(stream, received)
                if line is None:
                    return
                await self._commands.answer(line, operator, partial(_send, stream))
        except (trio.BrokenResourceError, trio.TooSlowError, ControlError) as error:
            log.info("control connection dropped", reason=str(error) or type(error).__name__)
        except ENDS_NODE:
            raise
        except Exception:
            log.exception("control connection failed")
        finally:
            self._connections -= 1


def _remove(file: Path, made: os.stat_result) -> None:
    """Not another's, where the data directory was replaced."""
    with contextlib.suppress(OSError):
        if os.path.samestat(file.stat(), made):
            file.unlink()


def _credentials(connected: Any) -> tuple[int | None, int | None]:
    """(pid, uid) of the process at the other end, where the system says it. `connected`: a socket, or trio's."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None, None
    pid, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(pid), int(uid)


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
