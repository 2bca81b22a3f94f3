"""`make cluster`: three nodes and etcd come up, the example that is printed works, Ctrl-C ends everything.

What is verified: the program behind the target, as a user runs it. Not verified here: what a cluster guarantees
(`tests/faults/test_cluster_*.py`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.harness.etcd import etcd_program

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS, THEN = "Try this:", "Then kill"
END_SECONDS_MAX = 60


def three_ports() -> int:
    """The first of three that follow each other and were free a moment ago."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            first = int(one.getsockname()[1])
        try:
            for port in (first, first + 1, first + 2):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


@pytest.mark.timeout(300)
def test_the_cluster_comes_up_works_and_ends(tmp_path: Path) -> None:
    etcd_program()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AMQPD_")}
    if "AMQPD_KERNEL" in os.environ:
        environment["AMQPD_KERNEL"] = os.environ["AMQPD_KERNEL"]
    command = [sys.executable, str(REPOSITORY / "scripts" / "cluster.py"), "--port", str(three_ports())]
    process = subprocess.Popen(
        [*command, "--directory", str(tmp_path / "cluster")],
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith(THEN):
                break
        text = "".join(said)
        assert RUNS in text, text
        example = textwrap.dedent(text.partition(RUNS)[2].partition(THEN)[0])
        done = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "b'order 0'\n", (done.stderr, text)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # an impatient user
        process.stdout.read()
        assert process.wait(END_SECONDS_MAX) == 0
        assert psutil.wait_procs(children, timeout=END_SECONDS_MAX)[1] == []
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_a_port_that_is_taken_is_named() -> None:
    etcd_program()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(REPOSITORY / "scripts" / "cluster.py"), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"make cluster: port {port} is taken (")
