"""The thread that writes the log: it never holds up what logs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading

from amqpd.process.logs import LogStream, LogWriter

DEADLINE_S = 60.0


class Pipe:
    """A descriptor whose reader reads only while `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.waited = threading.Event()
        self.written = b""

    def write(self, _: int, data: bytes) -> int:
        if not self.open.is_set():
            self.waited.set()
            assert self.open.wait(DEADLINE_S)
        self.written += data[:5]
        return min(len(data), 5)


def notice(count: int) -> str:
    return f"[{count} lost]"


def test_what_is_logged_comes_out_in_order() -> None:
    pipe = Pipe()
    pipe.open.set()
    writer = LogWriter(-1, notice, write_bytes=pipe.write)
    for number in range(100):
        writer.write(f"line {number}\n")
    assert writer.flush(DEADLINE_S)
    assert pipe.written.decode() == "".join(f"line {number}\n" for number in range(100))


def test_a_reader_who_stops_holds_up_nobody_and_is_told_what_is_missing_and_where() -> None:
    pipe = Pipe()
    writer = LogWriter(-1, notice, bytes_max=10, write_bytes=pipe.write)
    writer.write("12345")
    assert pipe.waited.wait(DEADLINE_S)
    for text in ("67890", "a", "bb", "ccc"):  # the first fills what there is space for
        writer.write(text)
    assert not writer.flush(0.0)
    pipe.open.set()
    assert writer.flush(DEADLINE_S)
    writer.write("again")
    assert writer.flush(DEADLINE_S)
    assert pipe.written == b"1234567890[3 lost]again"
    assert writer.dropped == 3


def test_a_descriptor_that_is_gone_is_counted_and_nothing_else() -> None:
    def gone(_: int, __: bytes) -> int:
        raise BrokenPipeError

    writer = LogWriter(-1, notice, write_bytes=gone)
    writer.write("nobody")
    assert writer.flush(DEADLINE_S)
    assert writer.dropped == 1


def test_what_is_no_text_is_escaped() -> None:
    pipe = Pipe()
    pipe.open.set()
    writer = LogWriter(-1, notice, write_bytes=pipe.write)
    print("\udc80", file=LogStream(writer, 2), end="")
    assert writer.flush(DEADLINE_S)
    assert pipe.written == b"\\udc80"


PROGRAM = """
import os, select, sys
from amqpd.process.logs import configure_logs, unblock_standard_error
unblock_standard_error()
configure_logs("info")
import structlog
if {full}:
    while select.select([], [2], [], 0)[1]:
        os.write(2, b"-" * 4096)
    for number in range(100_000):
        structlog.get_logger().info("more than there is space for", number=number)
    print("went on", flush=True)
raise RuntimeError("the program's last words")
"""


def run(full: bool) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", PROGRAM.replace("{full}", str(full))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_a_traceback_still_comes_out() -> None:
    with run(full=False) as process:
        said = process.communicate(timeout=DEADLINE_S)[1].decode()
    assert process.returncode == 1
    assert said.rstrip().endswith("RuntimeError: the program's last words")


def test_a_pipe_that_nobody_reads_stops_neither_the_program_nor_its_end() -> None:
    with run(full=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"went on\n"
        assert process.wait(DEADLINE_S) == 1
        assert select.select([process.stderr], [], [], 0)[0]  # nobody has read it until now
