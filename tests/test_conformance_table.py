"""The README of the conformance suite: its table has the suite's rules, all of them, and says why brokers differ."""

from __future__ import annotations

import re

import pytest

from conformance.quorum_default import DIFFERENT, why_different
from conformance.replicated import EXCLUSIVE
from conformance.rules import applies, differs, rule
from conformance.table import BEGIN, END, README, modules, rules, title


def rows() -> list[str]:
    text = README.read_text().split(BEGIN)[1].split(END)[0]
    return [line for line in text.splitlines() if line.startswith(("| ", "### ")) and not line.startswith("| rule |")]


def test_the_table_is_of_the_suite_as_it_is() -> None:
    expected: list[tuple[str, str]] = []
    for module in modules():
        expected.append((f"### {title(module)}", ""))
        expected += [(each.fixed, f"| {each.why.replace('|', chr(92) + '|')} |") for each in rules(module)]
    found = rows()
    stale = [
        row
        for row, (start, end) in zip(found, expected, strict=False)
        if not (row.startswith(start) and row.endswith(end))
    ]
    assert (stale[:3], len(found)) == ([], len(expected)), "run both brokers, then python -m conformance.table"


def test_no_row_says_failed_and_every_no_has_its_reason() -> None:
    for row in rows():
        if row.startswith("| "):
            *_, amqpd, rabbitmq, why, _ = (cell.strip() for cell in row.replace("\\|", "").split("|"))
            assert "failed" not in amqpd + rabbitmq, row
            for broker, verdict in (("amqpd", amqpd), ("rabbitmq", rabbitmq)):
                assert verdict in ("yes", "skipped") or f"{broker}" in why, row


def test_every_test_that_the_text_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", README.read_text().split(BEGIN)[0]))
    there = {each.test for module in modules() for each in rules(module)}
    assert named - there == set()


def test_what_is_otherwise_with_quorum_queues_names_tests_that_are_there() -> None:
    there = {f"{each.file}::{each.test}" for module in modules() for each in rules(module)}
    named = {case.partition("[")[0] for case in [*DIFFERENT, *EXCLUSIVE]}
    assert named <= there
    case = "test_prefetch::test_both_prefetches"
    assert why_different(f"conformance/{case.replace('::', '.py::')}") == DIFFERENT[case]
    assert why_different("conformance/test_prefetch.py::test_another") is None


class Server:
    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version


@pytest.mark.parametrize(
    ("on", "name", "version", "holds"),
    [
        ("amqpd", "amqpd", "0.1.0", True),
        ("amqpd", "rabbitmq", "3.10.8", False),
        ("rabbitmq<4", "rabbitmq", "3.10.8", True),
        ("rabbitmq<4", "rabbitmq", "4.0.0-rc.1", False),
        ("rabbitmq<4", "rabbitmq", "unheard of", False),
        ("rabbitmq>=3.12", "rabbitmq", "3.9", False),
        ("rabbitmq>=3.12", "rabbitmq", "3.12.1", True),
    ],
)
def test_conditions_name_brokers_and_versions(on: str, name: str, version: str, holds: bool) -> None:
    assert applies(on, Server(name, version)) is holds


def test_a_source_or_a_condition_that_nobody_can_look_up_is_refused() -> None:
    with pytest.raises(ValueError, match="section"):
        rule("somewhere", "Something holds.")
    with pytest.raises(ValueError, match="a broker of"):
        differs(on="lavinmq", why="because")
