"""What a shell is told when somebody presses Tab."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amqpd.__main__ import COMMANDS, run
from amqpd.commands.completion import VARIABLE


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """As bash asks: the words so far, and which one is being written."""
    words = line.split(" ")
    monkeypatch.setenv(VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit) as ended:
        run(["unused"])
    assert ended.value.code == 0
    return [said.partition(",")[2] for said in capsys.readouterr().out.splitlines() if said]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("amqpd qu", ["quorum", "queue"]),
        ("amqpd queue ", ["declare", "delete", "list", "purge", "show", "why"]),
        ("amqpd queue list --v", ["--vhost"]),
        ("amqpd top --sort o", ["out", "oldest"]),
        ("amqpd completion z", ["zsh"]),
        ("amqpd --conf", ["--config"]),
        ("amqpd nothing-like-it", []),
    ],
)
def test_tab(line: str, found: list[str], monkeypatch, capsys) -> None:
    assert completed(line, monkeypatch, capsys) == found


def test_all_commands(monkeypatch, capsys) -> None:
    assert completed("amqpd ", monkeypatch, capsys) == list(COMMANDS)


def test_tab_loads_no_command() -> None:
    """The whole program in a process of its own, which says what it has imported."""
    script = (
        f"import os, sys; os.environ.update({VARIABLE}='bash_complete', COMP_WORDS='amqpd qu', COMP_CWORD='1')\n"
        "from amqpd.__main__ import run\n"
        "try:\n    run(['x'])\nfinally:\n    print(*[n for n in sys.modules if n.startswith('amqpd.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,quorum", "plain,queue", ""]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, capsys) -> None:
    assert run(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in said
    assert "amqpd" in said
    assert run(["completion", "csh"]) == 2
