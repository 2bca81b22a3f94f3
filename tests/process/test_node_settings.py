"""A data directory keeps its node's name: which one counts when the machine's, or the setting, is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.journal.sqlite.schema import INCARNATION
from amqpd.process.node_settings import with_node_name

CLUSTER = {"cluster_store": "etcd://127.0.0.1/test", "cluster_listen": "127.0.0.1:5680"}
KEPT = {"node_name": "a@old"}
IN_CLUSTER = {**KEPT, INCARNATION: "7"}


@pytest.fixture(autouse=True)
def _on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "new")


def settings(**given: Any) -> Settings:
    return Settings(data_dir=Path("data"), **given)


def named(kept: dict[str, str], **given: Any) -> tuple[Settings, list[Any]]:
    """And what was logged."""
    with structlog.testing.capture_logs() as logged:
        return with_node_name(settings(**given), kept, Path("data")), logged


@pytest.mark.parametrize("kept", [{}, {"node_name": "a@new"}])
def test_a_first_start_and_a_start_with_the_same_name_are_as_they_are_set(kept: dict[str, str]) -> None:
    found, logged = named(kept, node_name="a", **CLUSTER)
    assert (found.node_name, logged) == ("a@new", [])


@pytest.mark.parametrize(
    ("kept", "given", "advice"),
    [
        (IN_CLUSTER, {"node_name": "a", **CLUSTER}, "in a cluster it stays as long as the data directory does"),
        (KEPT, {"node_name": "a"}, 'set node_name = "a@new" for the new one'),
    ],
)
def test_under_another_host_name_the_node_is_who_it_was_and_says_so(
    kept: dict[str, str], given: dict[str, Any], advice: str
) -> None:
    found, [line] = named(kept, **given)
    assert found.node_name == "a@old"
    assert (line["node_name"], line["not_"], line["advice"]) == ("a@old", "a@new", advice)


def test_a_node_without_a_setting_keeps_its_name_and_the_audit_log_its_own() -> None:
    found, _ = named({"node_name": "amqpd@old"})
    assert (found.node_name, found.audit_node) == ("amqpd@old", "old")
    assert settings().audit_node == "new"
    assert named(KEPT, node_name="a")[0].audit_node == "a@old"


@pytest.mark.parametrize("wanted", ["b", "a@new", "b@old"])
def test_another_name_of_a_clusters_data_is_refused_with_the_way_out(wanted: str) -> None:
    with pytest.raises(StartupError) as caught:
        named(IN_CLUSTER, node_name=wanted, **CLUSTER)
    sentence = caught.value.sentence
    assert (
        'data has the data of the cluster\'s node a@old, which is counted by that name: set node_name = "a@old"'
        in (sentence)
    )
    assert "empty data directory" in sentence
    assert "quorum force" not in sentence


@pytest.mark.parametrize(("wanted", "name"), [("b", "b@new"), ("a@new", "a@new"), ("b@old", "b@old")])
def test_a_node_alone_gets_the_name_that_is_set(wanted: str, name: str) -> None:
    assert named(KEPT, node_name=wanted)[0].node_name == name
    # A journal that joins a cluster for the first time was never counted.
    assert named(KEPT, node_name=wanted, **CLUSTER)[0].node_name == name
