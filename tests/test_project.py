"""What a newcomer reads first is true: README's program and commands, the Makefile's targets, what CI runs."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from amqpd.process.config_sources import CONFIG_VARIABLE, variable_names

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "amqpd.example.toml")


def makefile_targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def test_the_readmes_first_program_is_short_and_whole() -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    tree = ast.parse(program)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"pika"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_name_targets_variables_and_files_that_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    commands = set(re.findall(r"(?m)^ +make ([a-z-]+)|`make ([a-z-]+)", text))
    assert {first or second for first, second in commands} <= makefile_targets()
    known = {*variable_names(), CONFIG_VARIABLE}
    named = {
        name
        for name in re.findall(r"\bAMQPD_[A-Z_]+\b(?!\.\.\.)", text)
        if not name.startswith(("AMQPD_TEST", "AMQPD_FAULT", "AMQPD_MODEL"))
    }
    # "AMQPD_TLS_..." and the counterexample of ARCHITECTURE are not names of settings.
    assert {name for name in named if not name.endswith("_")} - {"AMQPD_TLS__PORT"} <= known


def test_the_makefile_has_every_promised_target() -> None:
    assert {"run", "test", "lint", "bench", "conformance", "clean"} <= makefile_targets()


def test_ci_runs_lint_and_the_readmes_test_command() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make")]
    assert lines == ["make lint", "make test"]
    assert "make test" in README


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["build"], *extras["bench"]]

    def name(requirement: str) -> str:
        found = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert found is not None
        return re.sub(r"[-_.]+", "-", found[0]).lower()

    pinned = {name(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert {name(requirement) for requirement in wanted} - {"amqpd"} <= pinned, "extras of its own need no pin"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"PYTHON": "/does/not/exist"},
            "amqpd: needs Python 3.11 or newer and found none: install it, or name it with ",
        ),
        (
            {"PYTHONPATH": "bare"},
            " has neither venv nor pip: on Debian and Ubuntu run 'apt-get install python3-venv'",
        ),
    ],
)
def test_a_machine_that_lacks_something_is_told_in_one_sentence(
    variables: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    # Modules that cannot be imported stand for packages that are not installed.
    (tmp_path / "bare").mkdir()
    for missing in ("ensurepip", "pip"):
        (tmp_path / "bare" / f"{missing}.py").write_text("raise ImportError")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"} | variables
    done = subprocess.run(
        ["sh", ROOT / "scripts" / "venv.sh", "new-venv"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new-venv").exists()
