"""What the account says around a hole of the log, and of messages that came back: all histories in one log.

What is verified: each history's books and findings. Not verified: which holes there are (`test_inventory.py`,
`test_log_holes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.harness.slow import slow
from tests.spark.conservation_holes import HISTORIES
from tests.spark.conservation_stories import Queue
from tests.spark.log import Log
from tests.spark.test_conservation import called, read_back, read_by


@pytest.fixture(scope="module", params=["here", slow("in tasks")])
def where(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from read_by(request.param)


@pytest.fixture(scope="module")
def told(where: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("histories")
    log = Log(folder / "events")
    for queue_id, (name, (tell, _, _)) in enumerate(HISTORIES.items(), 1):
        for incarnation in (1, 2, 3):
            log.add("started", incarnation=incarnation, node=name)
        tell(Queue(log, name, queue_id, node=name))
    answer = called(log.write_as_broker(), folder / "out")
    assert answer.exit_code == 1, answer.output
    return read_back(folder / "out")


@pytest.mark.parametrize("name", HISTORIES)
def test_history(told: dict[str, tuple[str, str]], name: str):
    _, books, findings = HISTORIES[name]
    assert told.get(name, ("", "")) == (books, findings)
