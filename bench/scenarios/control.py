"""Connections and declarations: what a broker costs when few messages flow.

What comes in: a setting. What goes out: connections or declarations per second, memory per idle connection.
Rules: 1. all of it one at a time, from one process; 2. memory is the growth of the broker's resident memory,
taken after it has stopped changing, in a broker process that has done nothing before.
Not here: messages at speed (`stream.py`, `closed.py`).
"""

from __future__ import annotations

from time import sleep

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.proc import usage_of
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, result_of
from bench.scenarios.flow import run_flow
from bench.topology import Topology

QUEUES = 1_000
CONNECTIONS = 1_000
PHASES_SECONDS_MAX = 300.0
SETTLE_SECONDS_MAX = 10.0
SETTLE_LOOK_SECONDS = 1.0
SETTLED_SHARE = 0.01


def run_churn(setting: Setting) -> Result:
    with Topology(setting.url) as topology:
        queue = topology.queue()
        publisher = {"role": "churn", "key": queue, "body_bytes": 100}
        flow = run_flow(setting, publisher, {"role": "consume", "queues": [[queue]]})
    return flow.result([Figure("rate", flow.rate(), "conn/s")])


def run_declare(setting: Setting) -> Result:
    queues = max(10, round(QUEUES * min(1.0, setting.scale)))
    with Topology(setting.url) as topology, Crew() as crew:
        worker = crew.start("declare", url=setting.url, prefix=f"{topology.prefix}-", queues=queues)
        first = look(setting.pid)
        crew.go(first.at, first.at)
        (done,) = crew.expect("done", [worker], PHASES_SECONDS_MAX)
        last = look(setting.pid)
    windows = {phase: done[phase] for phase in ("declare", "delete")}
    figures = [Figure(phase, queues / window["seconds"], "1/s") for phase, window in windows.items()]
    return result_of(figures, windows, 2 * queues, first, last, {"published": queues})


def run_idle(setting: Setting) -> Result:
    if setting.pid is None:
        raise BenchError("memory per connection needs the broker's process id")
    connections = max(10, round(CONNECTIONS * min(1.0, setting.scale)))
    with Crew() as crew:
        worker = crew.start("idle", url=setting.url, connections=connections)
        before = _settled_rss(setting.pid)
        first = look(setting.pid)
        crew.go(first.at, first.at)
        crew.expect("stopped", [worker], PHASES_SECONDS_MAX)
        last = look(setting.pid)
        after = _settled_rss(setting.pid)
        worker.tell("finish")
        (done,) = crew.expect("done", [worker], PHASES_SECONDS_MAX)
    figures = [
        Figure("memory", (after - before) / connections / 1e3, "kB/conn", higher_is_better=False),
        Figure("connect", connections / done["window"]["seconds"], "conn/s"),
    ]
    return result_of(figures, {"idle": done["window"]}, connections, first, last, {"published": connections})


def _settled_rss(pid: int) -> int:
    """Resident bytes once two looks a second apart differ by less than 1 %, or after ten seconds."""
    deadline, last = now() + SETTLE_SECONDS_MAX, 0
    while True:
        usage = usage_of(pid)
        if usage is None:
            raise BenchError("the broker's process is gone")
        if abs(usage.rss_bytes - last) <= SETTLED_SHARE * usage.rss_bytes or now() > deadline:
            return usage.rss_bytes
        last = usage.rss_bytes
        sleep(SETTLE_LOOK_SECONDS)


SCENARIOS = [
    Scenario(
        "idle-1000",
        "1,000 connections with an exclusive queue and a consumer each, doing nothing",
        run_idle,
        needs_fresh=True,
    ),
    Scenario("declare-1000", "declare 1,000 durable queues one by one, then delete them", run_declare),
    Scenario("churn", "connect, open a channel, publish once with confirm, close; one at a time", run_churn),
]
