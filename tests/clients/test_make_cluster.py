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

httpx2 = pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = str(REPOSITORY / "scripts" / "cluster.py")
RUNS, LOOK, THEN = "Try this:", "Look at it", "Then kill"
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


def assert_pages(port: int) -> None:
    """Of one forwarder: the pages are there, and it knows the others and what they have."""
    url, guest = f"http://127.0.0.1:{port}", ("guest", "guest")
    assert "<title>amqpd</title>" in httpx2.get(f"{url}/").text
    found = httpx2.get(f"{url}/api/amqpd/cluster", auth=guest, timeout=30).json()
    assert found["says"][0] == "3 nodes live."
    assert [row["lives"] for row in found["members"]] == [True] * 3
    assert [(row["queues"], len(row["members"])) for row in found["sources"]] == [(1, 3)]
    assert "orders" in [row["name"] for row in httpx2.get(f"{url}/api/queues", auth=guest, timeout=30).json()]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_cluster_comes_up_works_and_ends(tmp_path: Path) -> None:
    etcd_program()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AMQPD_")}
    if "AMQPD_KERNEL" in os.environ:
        environment["AMQPD_KERNEL"] = os.environ["AMQPD_KERNEL"]
    port, http_port = three_ports(), three_ports()
    command = [sys.executable, SCRIPT, "--port", str(port), "--http-port", str(http_port)]
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
        example = textwrap.dedent(text.partition(RUNS)[2].partition(LOOK)[0])
        done = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "b'order 0'\n", (done.stderr, text)
        for each in range(http_port, http_port + 3):
            assert f"http://127.0.0.1:{each}/" in text
            assert_pages(each)
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
        command = [sys.executable, SCRIPT, "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"make cluster: port {port} is taken (")


def test_a_port_that_is_none_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--port", "99999"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "99999 is not between 1 and 65529" in done.stderr
