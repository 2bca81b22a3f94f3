"""What the tools print is read as they print it, and a run that was cut short has not passed.

What comes in: folders of results, written by hand. What goes out: verdicts. Rules: none but CONTRIBUTING's.
Not here: the suites themselves, which run from checkouts (`__main__.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .verdicts import FAILED, PASSED, SKIPPED, exit_code, only_on, outcomes, reasons

CARGO = """\
warning: unused import
     Running unittests src/lib.rs (target/debug/deps/amqprs-5ebbe34e4ba22499)

running 3 tests
test api::basic::tests::acks ... ok
test api::basic::tests::slow ... ignored, needs an hour
test api::basic::tests::nacks ... a line that the test printed
FAILED

failures:

---- api::basic::tests::nacks stdout ----
thread 'nacks' panicked: connection reset

note: run with RUST_BACKTRACE=1

     Running tests/test_get.rs (target/debug/deps/test_get-96a4d7c54597c2)

running 1 test
test api::basic::tests::acks ... FAILED
"""


def test_of_cargo_each_program_has_tests_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "cargo-test.txt").write_text(CARGO)
    assert outcomes(tmp_path) == {
        "src/lib.rs::api::basic::tests::acks": PASSED,
        "src/lib.rs::api::basic::tests::slow": SKIPPED,
        "src/lib.rs::api::basic::tests::nacks": FAILED,
        "tests/test_get.rs::api::basic::tests::acks": FAILED,
    }
    assert "connection reset" in reasons(tmp_path)["src/lib.rs::api::basic::tests::nacks"]


def test_of_go_the_random_part_of_a_name_is_left_out(tmp_path: Path) -> None:
    name = "TestPublish/TestClose/0fc5fbe2-4696-4e9f-b930-007ec03f35cb"
    (tmp_path / "go-test.json").write_text(f'{{"Action":"pass","Test":"{name}"}}\nok  package\n')
    assert outcomes(tmp_path) == {"TestPublish/TestClose/UUID": PASSED}


@pytest.mark.parametrize("text", ["", "<testsuites><testcase name='a'"])
def test_half_a_report_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "junit.xml").write_text(text)
    with pytest.raises(ValueError, match="no test reported anything"):
        outcomes(tmp_path)


def test_a_test_that_is_not_reported_has_not_passed() -> None:
    assert only_on({"one": PASSED, "two": PASSED}, {"one": PASSED}) == ["two"]


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ({"amqpd": {"a": PASSED, "b": SKIPPED}}, 0),
        ({"amqpd": {"a": PASSED, "b": FAILED}}, 1),
        ({"amqpd": {}}, 2),
        ({"RabbitMQ": {"a": PASSED, "b": FAILED}, "amqpd": {"a": PASSED, "b": FAILED}}, 0),
        ({"RabbitMQ": {"a": PASSED}, "amqpd": {"a": FAILED}}, 1),
        ({"RabbitMQ": {"a": PASSED}, "amqpd": {}}, 1),
    ],
)
def test_a_suite_that_did_not_run_has_an_exit_code_of_its_own(runs: dict[str, dict[str, str]], code: int) -> None:
    assert exit_code(runs) == code
