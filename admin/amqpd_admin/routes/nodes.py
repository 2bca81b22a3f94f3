"""This node: what it uses and may use, its memory; start of a virtual host, even sharing of queues."""

from __future__ import annotations

import resource
import shutil
from typing import NamedTuple

import psutil
import trio
from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management.errors import Unavailable
from amqpd.process.alarms import limits_from
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, gone, not_there, reply
from amqpd_admin.lists import Row, of_made
from amqpd_admin.login import Administrator, Monitor, Who
from amqpd_admin.paths import Name
from amqpd_admin.rows.churn import CHURN, churn
from amqpd_admin.rows.listeners import contexts, exchange_types
from amqpd_admin.samples import Asked, SamplesAsked

router = APIRouter(tags=["nodes"])

SAMPLED = ("mem_used", "disk_free", "sockets_used", "context_switches", *CHURN)
MECHANISMS = (("PLAIN", "user and password"), ("AMQPLAIN", "user and password, in a field table"))


def require_node(who: Who, name: str) -> None:
    """Raises Refusal."""
    if name != who.behind.on.node.identity.name:
        raise not_there()


@router.get("/nodes")
async def list_all(request: Request, who: Monitor, samples: Asked) -> Response:
    """This one."""
    return await lists.answer(request, of_made([await _row(request, who, samples)]))


@router.get("/nodes/{name}")
async def show(request: Request, name: Name, who: Monitor, samples: Asked) -> Response:
    """One node, by its name."""
    require_node(who, name)
    return await lists.one(request, await _row(request, who, samples))


@router.get("/nodes/{name}/memory")
async def memory(name: Name, who: Monitor) -> Response:
    """All of the process's: amqpd does not tell apart what for."""
    require_node(who, name)
    resident = psutil.Process().memory_info().rss
    return reply({"memory": {"strategy": "rss", "total": {"rss": resident}}})


@router.get("/nodes/{name}/memory/relative")
async def relative_memory(name: Name, who: Monitor) -> Response:
    """In per cent of all."""
    require_node(who, name)
    return reply({"memory": {"total": 100}})


@router.post("/vhosts/{vhost}/start/{name}", status_code=204)
async def start_vhost(vhost: Name, name: Name, who: Administrator) -> Response:
    """A virtual host that is there is served: nothing is to be done."""
    who.behind.on.vhost(vhost)
    if name != who.behind.on.node.identity.name:
        raise bad_request(f"Unknown node: {name}")
    return gone()


@router.post("/rebalance/queues", status_code=204)
async def rebalance(who: Administrator) -> Response:
    """On a node alone there is nothing to share."""
    if who.behind.clustered:
        raise Unavailable("a cluster's queues are moved by `amqpd queue` commands")
    return gone()


class _Process(NamedTuple):
    pid: int
    fd_used: int
    resident: int
    switches: int
    disk_free: int


def _process(directory: str) -> _Process:
    """In a thread: open files are counted one by one, and a disk may not answer."""
    process = psutil.Process()
    resident, switches = process.memory_info().rss, sum(process.num_ctx_switches())
    return _Process(process.pid, process.num_fds(), resident, switches, shutil.disk_usage(directory).free)


async def _row(request: Request, who: Who, samples: SamplesAsked) -> Row:
    node, settings = who.behind.on.node, request.app.state.settings
    process = await trio.to_thread.run_sync(_process, settings.directories[0])
    alarms, limits = node.alarms.kinds, limits_from(settings)
    row = {
        "name": node.identity.name,
        "type": "disc",
        "running": True,
        "os_pid": str(process.pid),
        "fd_used": process.fd_used,
        "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sockets_used": len(node.connections),
        "mem_used": process.resident,
        "mem_limit": limits.resident_bytes_max,
        "mem_calculation_strategy": "rss",
        "mem_alarm": "memory" in alarms,
        "disk_free": process.disk_free,
        "disk_free_limit": limits.disk_free_bytes_min,
        "disk_free_alarm": "disk" in alarms,
        "context_switches": process.switches,
        "uptime": round((trio.current_time() - request.app.state.began) * 1000),
        "processors": psutil.cpu_count() or 1,
        "db_dir": str(settings.data_dir),
        "config_files": [],
        "enabled_plugins": [],
        "exchange_types": exchange_types(),
        "auth_mechanisms": [{"name": name, "description": said, "enabled": True} for name, said in MECHANISMS],
        "partitions": [],
        "cluster_links": [],
        "contexts": contexts(request.app.state.addresses),
        "being_drained": node.draining,
        "rates_mode": "basic",
        **churn(node),
    }
    samples.add(row, SAMPLED, who.behind.samples.of_node, samples.range_of("node_stats"))
    return row
