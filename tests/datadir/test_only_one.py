"""One process on a machine for each journal's identity: a second one is told who the first is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from amqpd.datadir.lock import open_data_directory
from amqpd.datadir.only_one import claim_scope, claimed
from amqpd.errors import StartupError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract sockets are Linux's")

HOLDS = """
import sys
from pathlib import Path
from amqpd.datadir.lock import open_data_directory
from amqpd.datadir.only_one import claimed
with open_data_directory(Path(sys.argv[1])), claimed(sys.argv[2], Path(sys.argv[1])):
    print("holds", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(directory: Path, identity: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(directory), identity],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "holds\n"
            yield process
        finally:
            process.kill()


def refusal(identity: str, directory: Path, name: str = "") -> str:
    with pytest.raises(StartupError) as caught, claimed(identity, directory, name):
        pass
    return caught.value.sentence


def test_a_second_one_is_told_who_has_it_also_while_that_one_is_stopped(tmp_path: Path) -> None:
    identity, original = uuid4().hex, tmp_path / "original"
    with another_process(original, identity) as process:
        for how in (signal.SIGCONT, signal.SIGSTOP):
            process.send_signal(how)
            assert refusal(identity, tmp_path / "copy") == (
                f"{tmp_path / 'copy'} is a copy of the data directory of a node that runs: process {process.pid}, "
                f"with {original}; this start has changed nothing of that node. Stop that one first, or "
                "remove the copy: a new node starts with an empty data directory"
            )
        with claimed(uuid4().hex, tmp_path / "other"):
            pass
        process.kill()
        process.wait()
        with claimed(identity, tmp_path / "copy"):
            pass


def test_a_node_alone_is_looked_at_beside_its_original_under_another_name(tmp_path: Path) -> None:
    identity = uuid4().hex
    with open_data_directory(tmp_path), claimed(identity, tmp_path, "a@vm"):
        assert "give it a node_name of its own" in refusal(identity, tmp_path / "copy", "a@vm")
        with claimed(identity, tmp_path / "copy", "look@vm"):
            pass


def test_the_one_who_has_it_need_not_answer(tmp_path: Path) -> None:
    """However many have asked before."""
    identity = uuid4().hex
    with claimed(identity, tmp_path):
        for _ in range(200):
            assert "of a node that runs" in refusal(identity, tmp_path / "copy")


def test_where_claims_are_seen_has_a_name() -> None:
    assert claim_scope()
    assert claim_scope() == claim_scope()
