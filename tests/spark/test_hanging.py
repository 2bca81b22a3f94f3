"""A test that runs into its timeout costs itself, and no other one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
CONFTEST = Path(__file__).with_name("conftest.py")
# The first one fails without a hang, the second one holds the only task of the JVM for as long as that lives.
TESTS = """
import pytest


@pytest.fixture(scope="module")
def numbers(spark):
    return spark.range(3)


def test_before(numbers):
    assert numbers.count() == 3
    assert False


def test_that_hangs(spark, numbers):
    spark.sql("SELECT reflect('java.lang.Thread', 'sleep', 100000000L)").collect()


@pytest.mark.parametrize("again", range(2))
def test_behind_it(spark, numbers, again):
    assert numbers.count() == spark.range(3).count() == 3
"""


@pytest.mark.slow
def test_a_test_that_hangs_takes_no_other_with_it(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(TESTS)
    # It runs in another folder.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / name) for name in (".", "spark")))
    # As long as a slow machine takes to start a JVM, and no longer: it is waited for.
    monkeypatch.setenv("AMQPD_TEST_SPARK_TIMEOUT_S", "60")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*FAILED*test_before*", "*FAILED*test_that_hangs*"])
