"""The control socket: commands and answers, its bounds, and what the client says when there is no broker."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing

from amqpd.errors import NodeFailure
from amqpd.management.control import answers as control_answers
from amqpd.management.control import socket as control
from amqpd.management.control.answers import Commands
from amqpd.management.control.socket import (
    SOCKET_NAME,
    BrokerLost,
    ControlError,
    ControlServer,
    call,
    rows,
    short_path,
)
from amqpd.management.errors import AlreadyExists, BadArgument, ManagementError

pytestmark = pytest.mark.trio


async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"echo": arguments}


async def refuse(_: dict[str, Any]) -> dict[str, Any]:
    raise AlreadyExists("user 'bob' exists")


async def broken(_: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("our bug")


async def failing(_: dict[str, Any]) -> dict[str, Any]:
    raise NodeFailure("fsync failed")


def numbers(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(arguments["count"]):
        yield {"number": number, "padding": "x" * arguments.get("bytes", 0)}
    if arguments.get("refused"):
        raise ManagementError("no more of them")


async def slow_numbers(arguments: dict[str, Any]) -> AsyncGenerator[list[dict[str, Any]], None]:
    for number in range(arguments["count"]):
        await trio.lowlevel.checkpoint()
        yield [{"number": number, "uid": control_answers.caller().uid}] if number % 2 else []
    if arguments.get("refused"):
        raise ManagementError("no more of them")


HANDLERS = {"echo": echo, "refuse": refuse, "broken": broken, "failing": failing}


@contextlib.asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(
            ControlServer(Commands(HANDLERS, {"numbers": numbers}, {"slow": slow_numbers})).run, data_dir
        )
        yield
        nursery.cancel_scope.cancel()


async def ask(data_dir: Path, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any] | None:
    return await trio.to_thread.run_sync(call, data_dir, command, arguments)


async def ask_rows(data_dir: Path, arguments: dict[str, Any]) -> list[dict[str, Any]] | None:
    return await trio.to_thread.run_sync(rows, data_dir, "numbers", arguments)


async def raw(data_dir: Path, line: bytes) -> bytes:
    with short_path(data_dir) as path:
        stream = await trio.open_unix_socket(path)
    async with stream:
        await stream.send_all(line)
        received = b""
        while not received.endswith(b"\n") and (piece := await stream.receive_some()):
            received += piece
        return received


async def test_a_command_gets_its_answer(tmp_path: Path) -> None:
    async with running(tmp_path):
        assert await ask(tmp_path, "echo", {"name": "zoë"}) == {"echo": {"name": "zoë"}}
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_rows_that_are_waited_for_come_page_by_page_and_the_caller_is_known(tmp_path: Path) -> None:
    async with running(tmp_path):
        line = b'{"command": "slow", "arguments": {"count": 3}}\n'
        received = b""
        with short_path(tmp_path) as path:
            stream = await trio.open_unix_socket(path)
        async with stream:
            await stream.send_all(line)
            while b"result" not in received:
                received += await stream.receive_some()
        answers = [json.loads(each) for each in received.splitlines()]
        assert [each.get("rows") for each in answers] == [[], [{"number": 1, "uid": os.getuid()}], [], None]
        found = await trio.to_thread.run_sync(rows, tmp_path, "slow", {"count": 5})
        assert [row["number"] for row in found or ()] == [1, 3]
        with pytest.raises(ManagementError, match="no more of them"):
            await trio.to_thread.run_sync(rows, tmp_path, "slow", {"count": 2, "refused": True})
    assert control_answers.caller().uid is None


async def test_a_refusal_is_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(AlreadyExists, match=r"^user 'bob' exists$"):
            await ask(tmp_path, "refuse")
        with pytest.raises(BadArgument, match=r"^unknown command 'nothing'$"):
            await ask(tmp_path, "nothing")


async def test_a_bug_in_a_handler_is_logged_and_the_server_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path):
        with structlog.testing.capture_logs() as logs, pytest.raises(ManagementError, match="see its log"):
            await ask(tmp_path, "broken")
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [("control command failed", "error")]
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_a_failure_of_the_node_is_not_answered_but_raised(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(NodeFailure, match="fsync failed"), flatten_subgroups=True):
        async with running(tmp_path):
            with pytest.raises(ControlError, match="lost the broker"):
                await ask(tmp_path, "failing")
            await trio.sleep_forever()


async def answer_of(folder: Path, arguments: dict[str, Any]) -> list[bytes]:
    """The lines of a listing, as they are sent."""
    with short_path(folder) as path:
        stream = await trio.open_unix_socket(path)
    received = b""
    async with stream:
        await stream.send_all(json.dumps({"command": "numbers", "arguments": arguments}).encode() + b"\n")
        while not received.endswith(b'{"ok": true, "result": {}}\n'):
            received += await stream.receive_some()
    return received.splitlines()


async def test_a_page_whose_rows_take_long_is_sent_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does nothing else while a page is filled."""
    monkeypatch.setattr(control_answers, "PAGE_S", 0.0)
    async with running(tmp_path):
        assert len(await answer_of(tmp_path, {"count": 7, "bytes": 50})) == 7 + 1


async def test_a_listing_comes_in_pages_that_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_answers, "PAGE_BYTES", 1000)
    async with running(tmp_path):
        found = await ask_rows(tmp_path, {"count": 500, "bytes": 50})
        assert found is not None
        assert [row["number"] for row in found] == list(range(500))
        lines = await answer_of(tmp_path, {"count": 500, "bytes": 50})
        assert len(lines) > 20
        assert max(map(len, lines)) < 1200
        assert await ask_rows(tmp_path, {"count": 0}) == []
    assert await ask_rows(tmp_path, {"count": 1}) is None


async def test_a_listing_that_fails_on_its_way_says_so(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(ManagementError, match=r"^no more of them$"):
            await ask_rows(tmp_path, {"count": 3, "refused": True})
        with structlog.testing.capture_logs(), pytest.raises(ManagementError, match="see its log"):
            await ask_rows(tmp_path, {})
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_a_value_that_is_too_long_is_left_out_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_answers, "VALUE_BYTES_MAX", 1000)
    async with running(tmp_path):
        found = await ask_rows(tmp_path, {"count": 2, "bytes": 5000})
    assert found == [{"number": n, "padding": "too long to list (5002 bytes)"} for n in (0, 1)]


async def test_several_commands_on_one_connection_however_they_are_cut(tmp_path: Path) -> None:
    async with running(tmp_path):
        stream = await trio.open_unix_socket(tmp_path / SOCKET_NAME)
        async with stream:
            text = b'{"command": "echo", "arguments": {"n": 1}}\n{"command": "echo", "arguments": {"n": 2}}\n'
            for position in range(len(text)):
                await stream.send_all(text[position : position + 1])
            received = b""
            while received.count(b"\n") < 2:
                received += await stream.receive_some()
    answers = [json.loads(line)["result"]["echo"]["n"] for line in received.splitlines()]
    assert answers == [1, 2]


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"{}\n", b'{"command": 1}\n', b"\xff\n", b"[" * 5000 + b"\n"])
async def test_what_is_no_command_is_refused(line: bytes, tmp_path: Path) -> None:
    async with running(tmp_path):
        answer = json.loads(await raw(tmp_path, line))
        assert answer["ok"] is False
        assert "one JSON object" in answer["error"]


async def test_a_line_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LINE_BYTES_MAX", 1000)
    async with running(tmp_path):
        with contextlib.suppress(trio.BrokenResourceError):
            assert await raw(tmp_path, b"x" * 100_000) == b""
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_too_many_connections_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 1)
    async with running(tmp_path):
        first = await trio.open_unix_socket(tmp_path / SOCKET_NAME)
        async with first:
            await first.send_all(b'{"command": "echo"}\n')
            assert b'"ok": true' in await first.receive_some()
            second = await trio.open_unix_socket(tmp_path / SOCKET_NAME)
            async with second:
                assert b"more than 1 control connections" in await second.receive_some()
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_who_says_nothing_is_dropped(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running(tmp_path):
        stream = await trio.open_unix_socket(tmp_path / SOCKET_NAME)
        async with stream:
            assert await stream.receive_some() == b""
        assert trio.current_time() >= control.IDLE_TIMEOUT_S


async def test_only_the_owner_can_reach_it_and_it_goes_away(tmp_path: Path) -> None:
    async with running(tmp_path):
        assert (tmp_path / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_a_socket_of_a_dead_broker_is_nobody_and_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(tmp_path / SOCKET_NAME))
    assert await ask(tmp_path, "echo") is None
    async with running(tmp_path):
        assert await ask(tmp_path, "echo") == {"echo": {}}


async def test_without_a_broker_there_is_no_answer(tmp_path: Path) -> None:
    assert await ask(tmp_path, "echo") is None
    assert await ask(tmp_path / "nowhere", "echo") is None
    (tmp_path / "file").write_text("")
    assert await ask(tmp_path / "file", "echo") is None


async def test_a_data_directory_deeper_than_a_socket_address(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["directory-with-a-long-name"] * 6)
    deep.mkdir(parents=True)
    assert len(os.fspath(deep)) > 120
    async with running(deep):
        assert (deep / SOCKET_NAME).is_socket()
        assert await ask(deep, "echo", {"n": 1}) == {"echo": {"n": 1}}
    assert await ask(deep, "echo") is None


async def test_a_broker_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(os.fspath(tmp_path / SOCKET_NAME))
        silent.listen()
        with pytest.raises(ControlError, match=r"did not answer within 0\.01 s"):
            await trio.to_thread.run_sync(lambda: call(tmp_path, "echo", timeout_s=0.01))


@contextlib.contextmanager
def stopped_process(directory: Path, backlog: int) -> Iterator[int]:
    """That listens on the control socket, and is stopped (SIGSTOP) as it is."""
    program = (
        "import os, signal, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
        "s.listen(int(sys.argv[2])); print('listening', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    command = [sys.executable, "-S", "-c", program, SOCKET_NAME, str(backlog)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=directory) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"listening\n"
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            yield process.pid
        finally:
            process.kill()


async def test_of_a_process_that_is_stopped_nobody_waits_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "STOPPED_LOOK_S", 0.01)
    with (
        stopped_process(tmp_path, 16) as pid,
        pytest.raises(BrokerLost, match=rf"process {pid}, is stopped .*: 'kill -CONT {pid}' lets it go on"),
    ):
        call(tmp_path, "status", timeout_s=20.0)


async def test_a_broker_for_which_too_many_commands_wait_is_named_as_that(tmp_path: Path) -> None:
    with stopped_process(tmp_path, 0), short_path(tmp_path) as path, contextlib.ExitStack() as waiting:
        with contextlib.suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(path)
        with pytest.raises(BrokerLost, match="takes no more commands, as many wait for it already: it is stopped"):
            call(tmp_path, "status", timeout_s=0.05)
