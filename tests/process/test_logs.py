"""The log's lines, and the notes to a service supervisor."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from amqpd.process.logs import Lines, configure_logs
from amqpd.process.notify import notify_ready, notify_stopping
from amqpd.vocabulary.escapes import UNSAFE


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_logfmt_with_time_level_event_component_first() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    structlog.get_logger(component="pump").info("client gone", peer="[::1]:5", reason='said "bye"\nnow', tls=True)
    assert re.fullmatch(
        r'time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z level=info event="client gone" component=pump '
        r'peer=\[::1\]:5 reason="said \\"bye\\"\\nnow" tls=true\n',
        stream.getvalue(),
    )


NAMES = st.sampled_from(["component", "event", "level", "b", "a", "connection"])
# structlog quotes for a space and for no other white space.
SAFE = st.text().filter(lambda text: not UNSAFE.search(text) and not re.search(r"[^\S ]", text))
VALUES = st.one_of(
    *(SAFE, st.sampled_from(["", " ", "=", '"', "\\", "\\n", "a\\b c", 'say "no"'])),
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.binary()),
)


@given(st.dictionaries(NAMES, VALUES))
def test_a_line_of_safe_text_is_what_structlog_would_write(fields: dict[str, object]) -> None:
    rendered = structlog.processors.LogfmtRenderer(
        key_order=["time", "level", "event", "component"], drop_missing=True, bool_as_flag=False
    )(None, "", {"time": "2026-11-21T09:51:24.015625Z", **fields})
    lines = Lines(lambda: 1_795_254_684.015625)
    for _ in range(2):
        assert lines(None, "", dict(fields)) == rendered


@pytest.mark.parametrize(
    ("value", "text"),
    [(("a@x", "b@x"), '"a@x, b@x"'), (["a@x"], "a@x"), ((), ""), (("a", '"'), '"a, \\""')],
)
def test_several_values_are_said_without_python(value: object, text: str) -> None:
    assert Lines(lambda: 0.0)(None, "", {"nodes": value}).endswith(f" nodes={text}")


@example({"component": "\u1680"})
@example({"connection": "a\u2003level=error", "b": "a\u3000b"})
@given(st.dictionaries(NAMES, st.one_of(st.text(), st.text('\r\n\t\x1b\x7f\x9b\u2028\u202e\udc80 "=\\'))))
def test_whatever_a_client_chose_a_line_is_one_line_that_does_nothing_to_a_terminal(fields: dict[str, str]) -> None:
    line = Lines(lambda: 0.0)(None, "", dict(fields))
    assert not UNSAFE.search(line)
    found = {}
    for name, quoted, bare in re.findall(r'(\w+)=(?:("(?:[^"\\]|\\.)*")|(\S*))', line):
        found[name] = json.loads(quoted) if quoted else bare
    assert {name: found[name] for name in fields} == fields  # and nothing of it is lost


def test_each_line_has_its_own_time() -> None:
    times = iter([0.0, 0.999_999_5, 1.5, 86_400.25])
    lines = Lines(lambda: next(times))
    assert [lines(None, "", {}) for _ in range(4)] == [
        "time=1970-01-01T00:00:00.000000Z",
        "time=1970-01-01T00:00:00.999999Z",
        "time=1970-01-01T00:00:01.500000Z",
        "time=1970-01-02T00:00:00.250000Z",
    ]


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    configure_logs("warning", stream)
    log = structlog.get_logger()
    log.info("no")
    log.warning("yes")
    assert stream.getvalue().count("\n") == 1


def test_an_exception_is_one_line() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    try:
        raise ValueError("boom")
    except ValueError:
        structlog.get_logger().exception("it broke")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: boom" in stream.getvalue()


def test_secrets_are_not_written() -> None:
    stream = io.StringIO()
    configure_logs("debug", stream)
    structlog.get_logger().info("login", user="ada", password="hunter2", response=b"\0ada\0hunter2")
    assert "hunter2" not in stream.getvalue()
    assert "user=ada" in stream.getvalue()
    assert "password=(hidden)" in stream.getvalue()


def test_what_libraries_log_comes_out_alike() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    logging.getLogger("alembic").info("not for operators")
    logging.getLogger("alembic").warning("odd %s", "table")
    assert stream.getvalue().count("\n") == 1
    assert 'level=warning event="odd table" component=alembic' in stream.getvalue()


def test_a_log_that_is_gone_does_not_stop_anything() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    configure_logs("info", stream)
    structlog.get_logger().info("nobody hears it")
    with pytest.raises(BrokenPipeError):
        stream.close()
    structlog.get_logger().info("nor this")


@pytest.fixture
def supervisor() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.setblocking(False)
        yield receiver


def test_without_a_supervisor_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert notify_ready() is False


def test_ready_and_stopping(supervisor: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor.bind(os.fspath(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(tmp_path / "notify"))
    assert notify_ready("127.0.0.1:5672") is True
    assert supervisor.recv(100) == b"READY=1\nSTATUS=127.0.0.1:5672"
    assert notify_stopping() is True
    assert supervisor.recv(100) == b"STOPPING=1"


def test_an_abstract_socket(supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"amqpd-test-{uuid.uuid4()}"
    supervisor.bind("\0" + name)
    monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
    assert notify_ready() is True
    assert supervisor.recv(100) == b"READY=1"


def test_a_supervisor_that_is_gone_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(tmp_path / "gone"))
    with structlog.testing.capture_logs() as logs:
        assert notify_ready() is False
    assert logs[0]["event"] == "supervisor not told"
