"""Which tests `make quick` takes for a change, what it leaves out, and that it ends in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.quick import ALWAYS, LARGE, LONG, ROOT, Deadline, select

TESTS = {
    "tests/queues/test_segments.py": "from amqpd.queues import segments",
    "tests/queues/test_turns.py": "",
    "tests/node/test_holds.py": "def f():\n    import amqpd.channels",
    "tests/node/test_memory_bounds.py": "",
    "tests/connection/test_rules.py": "from amqpd import channels",
    "tests/connection/test_fuzz.py": "",
    "tests/clients/test_pika.py": "import amqpd.channels",
    "tests/topology/test_sync.py": "",
    "tests/bench/test_bench_report.py": "",
    "tests/test_pump.py": "",
    "tests/test_quick.py": "",
    "tests/test_house.py": "",
}


def selected(*changed: str) -> tuple[list[str], list[str]]:
    found = select(changed, TESTS, TESTS.__getitem__)
    assert found.files.pop() == "tests/test_house.py", "the rules of the whole tree run whatever changed"
    return found.files, found.left


@pytest.mark.parametrize(
    ("changed", "files", "left"),
    [
        ("amqpd/queues/segments.py", ["tests/queues/test_segments.py", "tests/queues/test_turns.py"], []),
        ("amqpd/queues/new.py", ["tests/queues/test_segments.py", "tests/queues/test_turns.py"], []),
        ("amqpd/topology/metadata/sqlite/deep.py", ["tests/topology/test_sync.py"], []),
        ("amqpd/pump.py", ["tests/test_pump.py"], []),
        ("amqpd/connection.py", ["tests/connection/test_rules.py"], ["tests/connection/test_fuzz.py"]),
        ("amqpd/channels.py", ["tests/connection/test_rules.py", "tests/node/test_holds.py"], []),
        ("amqpd/broker.py", [], ["amqpd/broker.py"]),
        ("amqpd/node/holds.py", ["tests/node/test_holds.py"], ["tests/node/test_memory_bounds.py"]),
        ("amqpd/node/memory_bounds.py", ["tests/node/test_memory_bounds.py", "tests/node/test_holds.py"], []),
        ("tests/node/test_memory_bounds.py", ["tests/node/test_memory_bounds.py"], []),
        ("tests/queues/model.py", ["tests/queues/test_segments.py", "tests/queues/test_turns.py"], []),
        ("tests/harness/sessions.py", [], ["tests/harness/sessions.py"]),
        ("tests/clients/wire.py", [], ["tests/clients/test_pika.py"]),
        ("tests/clients/test_pika.py", [], ["tests/clients/test_pika.py"]),
        ("bench/report.py", ["tests/bench/test_bench_report.py"], []),
        ("scripts/quick.py", ["tests/test_quick.py"], []),
        ("spark/amqpd_spark/jobs.py", [], ["spark/amqpd_spark/jobs.py"]),
        ("conformance/test_basic.py", [], ["conformance/test_basic.py"]),
        ("README.md", [], []),
    ],
)
def test_the_tests_of_a_file_follow_from_its_path(changed: str, files: list[str], left: list[str]) -> None:
    found = selected(changed)
    assert (found[0][: len(files)], sorted(found[0]), found[1]) == (files, sorted(files), left)


def test_each_test_file_is_taken_once() -> None:
    files, left = selected("amqpd/queues/segments.py", "amqpd/queues/turns.py", "tests/queues/test_turns.py")
    assert sorted(files) == ["tests/queues/test_segments.py", "tests/queues/test_turns.py"]
    assert left == []


def test_what_is_left_out_is_not_of_ghosts() -> None:
    assert {path for path in (*LONG, *ALWAYS) if not (ROOT / path).is_file()} == set()
    assert {name for name in LARGE if not (ROOT / "tests" / name).is_dir()} == set()


class Report:
    def __init__(self, failed: bool) -> None:
        self.failed = failed


@pytest.mark.parametrize(("failures", "code"), [([False, False], 0), ([True, False], 1)])
def test_at_the_deadline_the_run_ends_and_keeps_its_verdict(failures: list[bool], code: int) -> None:
    now = 10.0
    deadline = Deadline(until=11.0, now=lambda: now)
    deadline.pytest_runtest_logreport(Report(failures[0]))
    now = 12.0
    with pytest.raises(pytest.exit.Exception, match="make test") as ended:
        deadline.pytest_runtest_logreport(Report(failures[1]))
    assert ended.value.returncode == code


def test_every_package_of_amqpd_has_tests_by_its_path() -> None:
    packages = {path.parent.name for path in (ROOT / "amqpd").glob("*/__init__.py")}
    without = {name for name in packages if not list(Path(ROOT, "tests", name).rglob("test_*.py"))}
    # Values without behaviour have none; what declares is tested through methods/ and management/, which ask for it.
    assert without <= {"vocabulary", "declarations"}
