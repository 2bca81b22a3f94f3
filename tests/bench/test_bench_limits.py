"""The relay carries every byte, plain and over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.limits import CASES, Limit, measure, table
from bench.scenarios import SCENARIOS
from bench.tls import make_certificate


@pytest.mark.parametrize("name", ["plain-64k", "tls-100"])
def test_a_relay_carries_all_that_is_poured(name: str, tmp_path: Path) -> None:
    limit = measure(name, make_certificate(tmp_path), 0.2)
    assert limit.messages_per_s > 0
    assert limit.message_bytes > limit.body_bytes
    assert limit.mb_per_s == pytest.approx(limit.messages_per_s * limit.message_bytes / 1e6)


def test_limits_bound_scenarios_that_exist() -> None:
    assert {scenario for _, _, scenario in CASES.values() if scenario} <= set(SCENARIOS)


def test_the_table_has_a_line_for_each() -> None:
    limit = Limit("plain-100", "stream", 100, 161, False, 1e6, 161.0, 0.97, 1.03e6)
    head, line = table([limit]).splitlines()
    assert head.index("bounds") == line.index("stream")
    assert "1,000,000" in line
    assert "97%" in line
