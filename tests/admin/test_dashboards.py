"""Our Grafana dashboards: made by their program, of metrics that are served."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from amqpd.cluster.log_events import Counters
from amqpd.cluster.statistics import PeerLag, statistics
from scripts import grafana
from tests.admin.conftest import Api

NAME = re.compile(r"\b(?:amqpd|rabbitmq)_[a-z_]+")
BOARDS: dict[str, Any] = {name: json.loads(text) for name, text in grafana.files().items()}


def queries(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_the_files_are_what_the_program_makes() -> None:
    there = {path.name: path.read_text() for path in grafana.FOLDER.iterdir()}
    assert there == grafana.files(), "python scripts/grafana.py"


def test_each_metric_of_a_single_node_is_served(api: Api) -> None:
    api.do("PUT", "/queues/%2F/dashboard", {}, status=201)
    # A message: without any there is no oldest one.
    message = {"properties": {}, "routing_key": "dashboard", "payload": "x", "payload_encoding": "string"}
    api.do("POST", "/exchanges/%2F/amq.default/publish", message, status=200)
    text = httpx2.get(f"{api.url}/metrics", auth=("guest", "guest"), timeout=60).text
    served = set(re.findall(r"^([a-z_]+)[ {]", text, re.MULTILINE))
    api.do("DELETE", "/queues/%2F/dashboard", status=204)
    wanted = {name for query in queries(BOARDS["amqpd-overview.json"]) for name in NAME.findall(query)}
    assert len(wanted) > 25
    assert wanted - served == set()


def test_each_metric_of_a_cluster_is_one_of_its_statistics() -> None:
    sent = SimpleNamespace(transfers_begun=0, transfers_done=0, transfers_followed=0, entries=0, nbytes=0)
    leaders: Any = SimpleNamespace(replica_sets={}, sources={}, sent=sent, cut_off={}, given_up=set())
    facts = statistics(Counters(), leaders, [], "a", 1, 0.0).facts()
    served = {f"amqpd_cluster_{name}" for name in facts}
    served |= {f"amqpd_cluster_peer_{name}" for name in PeerLag.__dataclass_fields__}
    wanted = {name for query in queries(BOARDS["amqpd-cluster.json"]) for name in NAME.findall(query)}
    assert len(wanted) > 8
    assert wanted - served == set()


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    """No two panels in one place, each inside the width; each query of the chosen nodes of the chosen source."""
    board = BOARDS[name]
    assert f"{board['uid']}.json" == name
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= grafana.WIDTH
        assert not mine & cells, panel["title"]
        cells |= mine
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for query in queries(board):
        assert query.count('{instance=~"$instance"}') == len(NAME.findall(query)), query
        assert query.count("(") == query.count(")")
