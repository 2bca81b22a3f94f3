"""Health checks of quorum queues at a node of a cluster; of the others the test has rows.

What is verified: what would stop without this node, and what nobody leads, is a failure that names the queues which
who asks may see; patterns and virtual hosts count. Not verified here: real nodes
(`tests/clients/test_cluster_management.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.admin.inside import Inside, inside
from tests.admin.test_other_nodes import B, C, Cluster, queues

pytestmark = pytest.mark.trio

HERE = "one@x"
CRITICAL = "/health/checks/node-is-quorum-critical"
LEADERS = "/health/checks/quorum-queues-without-elected-leaders"


class View(Cluster):
    """Of sources, by number, the members that live; each has three."""

    def __init__(self, living: dict[int, tuple[str, ...]]) -> None:
        super().__init__()
        self.living = living

    def source_statuses(self, asked: dict[int, int]) -> Any:
        yield None
        for source, living in self.living.items():
            yield SimpleNamespace(
                source=source, leader=B, living=living, members=(HERE, B, C), has_majority=len(living) >= 2
            )


async def failed(api: Inside, path: str, user: str = "guest") -> list[str] | None:
    """Names; None: it is well."""
    answer = await api.ask("GET", path, user=user)
    said = answer.json()
    assert (answer.status, said["status"]) in ((200, "ok"), (503, "failed")), answer.text
    return None if answer.status == 200 else sorted(each["name"] for each in said["queues"])


async def test_what_has_all_copies_is_well() -> None:
    cluster = View(dict.fromkeys((5, 6, 7), (HERE, B, C)))
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type] # what of the view is asked here
        queues(api, "quorum")
        for path in (CRITICAL, f"{LEADERS}/all-vhosts", f"{LEADERS}/all-vhosts/", f"{LEADERS}/vhost/%2F"):
            assert await failed(api, path) is None


async def test_what_needs_this_node_is_named() -> None:
    cluster = View({5: (HERE, B), 6: (B, C), 7: (HERE, B, C)})
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        queues(api, "quorum")
        answer = await api.ask("GET", CRITICAL)
        assert answer.status == 503
        assert answer.json() == {
            "status": "failed",
            "reason": "There are quorum queues that would lose their quorum if the target node is shut down",
            "queues": [
                {
                    "readable_name": "queue 'far' in vhost '/'",
                    "name": "far",
                    "virtual_host": "/",
                    "type": "rabbit_quorum_queue",
                }
            ],
        }


async def test_what_nobody_leads_is_named_by_virtual_host_and_pattern() -> None:
    """A source without a majority, one whose leader is away, and one of which nobody has heard."""
    cluster = View({5: (C,), 6: (HERE, C)})
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        queues(api, "quorum")
        everything = ["far", "leaderless", "silent"]
        for where in ("/all-vhosts", "/vhost/%2F"):
            assert await failed(api, LEADERS + where) == everything
            assert await failed(api, f"{LEADERS}{where}/pattern/.%2A") == everything
            assert await failed(api, f"{LEADERS}{where}/pattern/%5Efar%24") == ["far"]
            for other in ("none", "FAR"):
                assert await failed(api, f"{LEADERS}{where}/pattern/{other}") is None
            assert (await api.ask("GET", f"{LEADERS}{where}/pattern/(")).status == 400
        assert (await api.ask("GET", f"{LEADERS}/vhost/nowhere")).status == 404
        assert await failed(api, f"{LEADERS}/all-vhosts", "clerk") == everything
