"""What a newcomer reads first is true: README's program and commands, the Makefile's targets, what CI runs, the
documents and what they refer to."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

import pytest

from amqpd.process.config_sources import CONFIG_VARIABLE, variable_names
from scripts.quick import LARGE
from tests.test_arrows import ARROWS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "amqpd.example.toml",
    "docs/running.md",
    "docs/testing.md",
    "docs/tutorial.md",
)


# Documents of this repository only: what the code rests on is said here (docs/decisions/), not cited by section.
ELSEWHERE = re.compile(r"\.\./shared|\b(?:DESIGN|CLUSTER|RELIABILITY|BEHAVIOUR)\b(?:\.md|,)? \d|\(STYLE\b[:, ]")


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.splitlines() if (ROOT / path).is_file()]


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
        if not name.startswith(("AMQPD_TEST", "AMQPD_FAULT", "AMQPD_MODEL", "AMQPD_SIMULATION"))
    }
    # "AMQPD_TLS_..." and the counterexample of ARCHITECTURE are not names of settings.
    assert {name for name in named if not name.endswith("_")} - {"AMQPD_TLS__PORT"} <= known


def test_the_makefile_has_every_promised_target() -> None:
    assert {"run", "test", "lint", "bench", "conformance", "clean"} <= makefile_targets()


def named_targets(document: str) -> list[str]:
    return re.findall(r"\bmake ([a-z-]+)", (ROOT / document).read_text().replace("\n", " "))


def test_the_two_pages_for_contributors_name_every_target_and_quick_first() -> None:
    contributing, testing = named_targets("CONTRIBUTING.md"), named_targets("docs/testing.md")
    assert contributing[0] == "quick"
    assert {"quick", "lint", "test", "coverage"} <= set(contributing)
    assert {*contributing, *testing, "run", "help", "clean"} == makefile_targets()


@pytest.mark.parametrize(("document", "lines"), [("README.md", 90), ("CONTRIBUTING.md", 115)])
def test_what_is_read_first_is_short(document: str, lines: int) -> None:
    assert len((ROOT / document).read_text().splitlines()) <= lines


def test_the_changelog_has_each_group_once_and_no_long_lines() -> None:
    """A merge that keeps the lines of both sides brings back what was rewritten: it is seen here."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    for version in "\n".join(lines).split("\n## ")[1:]:
        groups = re.findall(r"(?m)^### (.*)$", version)
        assert groups == [each for each in ("Added", "Changed", "Fixed", "Removed") if each in groups]
    assert [line for line in lines if len(line) > 118] == []
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) == len(set(entries))


def test_both_distributions_have_the_version_that_the_changelog_begins_with() -> None:
    [version] = {
        tomllib.loads((ROOT / each).read_text())["project"]["version"]
        for each in ("pyproject.toml", "spark/pyproject.toml")
    }
    newest = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())[0]
    assert re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d|not released yet)\)", newest)


def test_ci_runs_lint_and_the_readmes_test_command() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make")]
    assert lines == ["make lint", "make test"]
    assert "make test" in README


def test_the_public_workflow_runs_what_ci_runs_on_every_supported_python() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    runs = re.findall(r"run: (make .*)", text)
    assert [line for line in runs if line in ("make lint", "make test")] == ["make lint", "make test"]
    [versions] = re.findall(r"python: \[(.*)\]", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    classified = [each.removeprefix(prefix) for each in project["classifiers"] if each.startswith(prefix + "3.")]
    assert re.findall(r"[\d.]+", versions) == classified
    assert project["requires-python"] == f">={classified[0]}"


def test_workflows_run_targets_that_exist_with_the_same_actions() -> None:
    texts = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert set(texts) == {"ci.yml", "nightly.yml", "release.yml", "security.yml"}
    together = "\n".join(texts.values())
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"run: (.*)", together)))) <= makefile_targets()
    versions = set(re.findall(r"uses: (\S+)@(\S+)", together))
    assert len({name for name, _ in versions}) == len(versions), "one version of each action"
    assert [name for name, at in versions if not re.fullmatch(r"[0-9a-f]{40}", at)] == [], (
        "a tag can be moved, a hash not"
    )
    # Each job has an end, and no workflow may write more than its job needs.
    for name, text in texts.items():
        jobs = text.partition("\njobs:\n")[2]
        assert len(re.findall(r"(?m)^  [a-z]+:$", jobs)) == jobs.count("timeout-minutes:"), name
        assert "permissions:\n  contents: read\n" in text, name


def test_the_release_is_tried_on_every_supported_python() -> None:
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    [versions] = re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    compiled, plain = re.findall(r"python: \[(.*)\]", release)
    assert compiled == versions
    assert f'"3.11", {plain}' == versions, "3.11 tries the plain wheel where it is built"


def test_the_license_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    # The text as the Apache Software Foundation publishes it.
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_project_rests_on_no_document_from_elsewhere() -> None:
    found = {
        path
        for path in tracked()
        if path != "tests/test_project.py" and ELSEWHERE.search((ROOT / path).read_bytes().decode("utf-8", "replace"))
    }
    assert found == set(), "say the thing itself, or point to a file of docs/decisions/"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as DESIGN 9 says", True),
        ("(CLUSTER.md 3)", True),
        ("(RELIABILITY 1-5, 7)", True),
        ("see ../shared/a.md", True),
        ("a rule (STYLE: as they do)", True),
        ("DESIGN, in capitals", False),
        ("a cluster of 3", False),
    ],
)
def test_the_check_of_citations_finds_what_it_should(text: str, found: bool) -> None:
    assert bool(ELSEWHERE.search(text)) is found


def test_every_decision_is_listed_and_has_its_parts() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    listed = re.findall(r"(?m)^- \[(.+)\]\(docs/decisions/(.+)\.md\)$", architecture)
    files = {path.stem: path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert len(listed) == len({slug for _, slug in listed})
    assert {slug: title for title, slug in listed} == {
        slug: text.partition("\n")[0].removeprefix("# ") for slug, text in files.items()
    }
    for slug, text in files.items():
        headings = re.findall(r"(?m)^## (.*)", text)
        assert headings == ["Problem", "Decision", "Rejected alternatives"], slug
        assert all(part.strip() for part in re.split(r"(?m)^## .*$", text)[1:]), slug


def test_the_picture_of_the_packages_is_true() -> None:
    """Of ARCHITECTURE.md: each import goes to the same row or below, and every place of the arrows is there."""
    rows = re.findall(r"(?m)^    ((?:[a-z_/]+  ?)+) {2,}\S.*$", (ROOT / "ARCHITECTURE.md").read_text())
    row_of = {name.replace("/", "."): -index for index, row in enumerate(rows) for name in row.split()}
    # A package is where the package around it is, if it has no place of its own.
    row_of |= {name: row_of[name.rpartition(".")[0]] for name in ARROWS if name not in row_of and "." in name}
    assert set(row_of) == set(ARROWS)
    up = {(start, end) for start, ends in ARROWS.items() for end in ends.split() if row_of[end] > row_of[start]}
    assert not up


def test_the_walk_comes_by_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## The walk")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "amqpd").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in text} == set()


def test_what_types_are_not_checked_in_is_not_of_ghosts() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    modules = {each for override in overrides for each in override["module"] if each.startswith("tests.")}
    files = {each.removesuffix(".*").replace(".", "/") for each in modules}
    assert {each for each in files if not (ROOT / f"{each}.py").exists() and not (ROOT / each).is_dir()} == set()


def links() -> list[tuple[str, str]]:
    """Of the documents: where they are, and the files that they link to."""
    return [
        (path, target)
        for path in tracked()
        if path.endswith(".md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / path).read_text())
    ]


def test_who_sets_a_cluster_up_reads_all_settings_of_its_certificates() -> None:
    named = {"cluster_tls_ca", "cluster_tls_certificate", "cluster_tls_key"}
    blocks = re.findall(r"(?s)```toml\n(.*?)```", (ROOT / "docs" / "clustering.md").read_text())
    example = (ROOT / "amqpd.example.toml").read_text()
    told = [set(re.findall(r"cluster_tls_\w+", text)) for text in (*blocks, example)]
    assert [each for each in told if each] == [named, named]
    assert "without effect" not in example


def test_what_documents_link_to_exists() -> None:
    found = links()
    assert len(found) > 50
    assert [(path, target) for path, target in found if not (ROOT / path).parent.joinpath(target).exists()] == []


# Where a document names a file in short: the folders that it may mean.
SHORT = ("", "amqpd/", "tests/", "tests/faults/")


def named_files(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.(?:py|toml|sh|pyx))`", text))


@pytest.mark.parametrize(
    "document",
    [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/testing.md",
        *sorted(path for path in tracked() if path.startswith("docs/decisions/")),
    ],
)
def test_files_that_documents_name_exist(document: str) -> None:
    missing = {
        name
        for name in named_files((ROOT / document).read_text())
        if not any((ROOT / folder / name).exists() for folder in SHORT)
    }
    assert missing == set(), "it was moved: write where it is now"


def named_by(path: str, text: str) -> set[str]:
    """Files of this tree that a module names in backticks, and scripts anywhere."""
    if path.endswith(".py"):
        return set(re.findall(r"`([\w/.-]+\.(?:py|pyx|pxi|md|sh))`", text))
    return set(re.findall(r"(?<![\w/.$-])((?:amqpd|tests|scripts)/[\w/.-]+\.(?:py|sh))\b", text))


def test_files_that_modules_and_scripts_name_exist() -> None:
    """From one of the folders that they are in, or from a package on."""
    files = set(tracked())
    missing = [
        (path, name)
        for path in sorted(files)
        if path.endswith(".py") or path.startswith(("scripts/", "Makefile"))
        for name in sorted(named_by(path, (ROOT / path).read_text()))
        if path != "tests/test_quick.py"  # which names files for the sake of their names
        and not any(
            os.path.normpath(os.path.join(folder, name)) in files
            for folder in (*map(str, PurePosixPath(path).parents), "amqpd", "admin/amqpd_admin", "spark/amqpd_spark")
        )
    ]
    assert missing == [], "it was moved: write where it is now"


@functools.cache
def code() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "amqpd").rglob("*.py") if "_compiled" not in path.parts)


@pytest.mark.parametrize(
    "document", ["ARCHITECTURE.md", *sorted(path for path in tracked() if path.startswith("docs/decisions/"))]
)
def test_names_that_documents_take_from_the_code_are_there(document: str) -> None:
    text = (ROOT / document).read_text()
    names = set(re.findall(r"`([A-Z][A-Za-z]+)\.([a-z_]+)`", text))
    missing = {
        f"{owner}.{name}"
        for owner, name in names
        if not re.search(rf"\bclass {owner}\b", code()) or not re.search(rf"(?:def |self\.|    ){name}\b", code())
    }
    files = {path.rpartition("/")[2] for path in tracked()}
    missing |= set(re.findall(r"`([a-z_]+\.(?:py|pyx|sh))`", text)) - files
    assert missing == set(), "it was renamed: write what it is called now"


def test_the_newcomers_table_has_a_package_and_its_tests_in_each_row() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"(?m)^\| .+ \| `amqpd/([a-z]+)/` \| `tests/([a-z]+)/` \|$", text)
    assert len(rows) >= 12
    assert len(set(rows)) == len(rows)
    assert all(package == tests for package, tests in rows)
    assert [each for each, _ in rows if not (ROOT / "amqpd" / each).is_dir()] == []
    assert [each for _, each in rows if not list((ROOT / "tests" / each).glob("test_*.py"))] == []


def variable(name: str) -> list[str]:
    [value] = re.findall(rf"(?m)^{name} = (.*)$", (ROOT / "Makefile").read_text())
    return re.findall(r"[a-z_/.]+", value.removeprefix("$(addprefix tests/,"))


def test_what_only_the_plain_kernel_runs_is_run_on_it_by_make_test() -> None:
    """Where the kernel is compiled these are skipped: the second pass of `make test` has them."""
    skipped = [
        path.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"skipif\(KERNEL (?:!= \"python\"|== \"cython\")", path.read_text())
    ]
    assert "audit/test_books_add_up.py" in skipped
    core = variable("CORE")
    assert [path for path in skipped if not any(path == each or path.startswith(each + "/") for each in core)] == []


def test_quick_and_coverage_leave_the_same_folders_out() -> None:
    assert variable("LARGE") == list(LARGE)


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["build"], *extras["bench"], *extras["docs"]]

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


@pytest.mark.parametrize(
    ("target", "extras"), [("run", {"build"}), ("cluster", {"build", "etcd"}), ("site", {"docs"})]
)
def test_a_target_installs_what_it_needs_and_not_only_what_developers_have(
    target: str, extras: set[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        ["make", "-n", target, f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    [installed] = re.findall(r"venv\.sh \S+ (\S+)", done.stdout)
    assert set(installed.split(",")) >= extras


@pytest.mark.parametrize(
    ("extra", "stamps"),
    [
        ("docs", {".installed-docs"}),
        ("build,etcd", {".installed-run"}),
        ("dev", {".installed-run", ".installed-dev"}),
    ],
)
def test_an_environment_for_the_documents_is_not_taken_for_one_that_runs_the_broker(
    extra: str, stamps: set[str], tmp_path: Path
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")  # installs nothing
    python.chmod(0o755)
    subprocess.run(["sh", ROOT / "scripts" / "venv.sh", "venv", extra], cwd=tmp_path, check=True, capture_output=True)
    assert {each.name for each in (tmp_path / "venv").glob(".installed-*")} == stamps
