"""The pipeline is a distribution of its own: an auditor installs no broker, and who runs a broker no PySpark."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.spark.wheel import ROOT, built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def project(path: str) -> dict:
    return tomllib.loads((ROOT / path).read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", each, maxsplit=1)[0].lower() for each in requirements}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


def test_the_wheel_has_the_jobs_and_what_they_read_and_nothing_of_the_broker(wheel: Path):
    inside = zipfile.ZipFile(wheel).namelist()
    for name in ("log4j2.properties", "report_page/page.css", "report_page/page.html.j2", "py.typed"):
        assert f"amqpd_spark/{name}" in inside
    assert {name.split("/")[0].split("-")[0] for name in inside} == {"amqpd_spark"}
    modules = {path.relative_to(ROOT / "spark").as_posix() for path in (ROOT / "spark/amqpd_spark").rglob("*.py")}
    assert modules <= set(inside)


def test_the_wheel_asks_for_what_the_jobs_import_and_for_no_broker(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    [metadata] = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
    asked = names(Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or [])
    imported = {name for path in (ROOT / "spark/amqpd_spark").rglob("*.py") for name in imports(path)}
    foreign = {name.lower() for name in imported - set(sys.stdlib_module_names) - {"amqpd_spark"}}
    # py4j comes with PySpark, whose functions on columns want pandas.
    assert foreign - {"py4j"} == asked - {"pandas"}


def test_a_brokers_user_installs_no_pyspark():
    broker, pipeline = project("pyproject.toml"), project("spark/pyproject.toml")
    extras = broker["optional-dependencies"]
    assert not {"pyspark", "pandas"} & names(
        [*broker["dependencies"], *(each for list_ in extras.values() for each in list_)]
    )
    assert broker["version"] == pipeline["version"], "they are released together: the format of the log is theirs"


def test_the_jobs_help_with_nothing_of_the_broker_on_the_path(wheel: Path, tmp_path: Path):
    """From within the wheel, in a process that finds no module `amqpd`."""
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "sys.modules['amqpd'] = None\n"
        "from amqpd_spark.__main__ import main\n"
        "main(['conservation', '--help'], prog_name='amqpd-spark')\n"
    )
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "--input" in said.stdout
