"""A session of the bench: brokers that a command line asks for, scenarios on them in turns, the table and the file.

What comes in: parsed options and scenarios. What goes out: progress on standard error, the table on standard output,
JSON in a file, an exit code. Rules: 1. `python -m bench` and `python -m bench.perf_test` take the same options for
brokers; 2. without RabbitMQ the others are measured all the same; 3. what was measured before an interrupt is shown.
Not here: starting brokers (`brokers/`), the turns (`runner.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.brokers import (
    AmqpdCluster,
    Broker,
    PrivateAmqpd,
    PrivateRabbitmq,
    RabbitmqCluster,
    file_system_of,
)
from bench.brokers.private_amqpd import KERNELS
from bench.brokers.private_rabbitmq import find_rabbitmq, install_rabbitmq
from bench.errors import BenchError
from bench.report import Outcome, as_json, table
from bench.runner import run_all
from bench.scenarios import Scenario
from bench.wire import Address, Wire


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--amqpd", action="store_true", help="start a private amqpd from this checkout")
    add(
        "--rabbitmq",
        action="store_true",
        help="start a private rabbitmq-server (installed if root and missing)",
    )
    add(
        "--url",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="a running broker, amqp(s)://user:password@host:port/vhost",
    )
    add(
        "--pid",
        action="append",
        default=[],
        metavar="NAME=PID",
        help="process id of a --url broker, for its CPU and memory",
    )
    add(
        "--tls-url",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="amqps address of a --url broker, for tls-stream; ?cacertfile=FILE or ?verify=verify_none",
    )
    add(
        "--kernel",
        choices=(*KERNELS, "both"),
        default="",
        help="kernel of the private amqpd (what it chooses itself); both: two brokers, amqpd and amqpd-python",
    )
    add(
        "--audit",
        default="",
        metavar="LEVEL,...",
        help="a private amqpd for each of these levels of the audit log: off,full (ratios refer to the first)",
    )
    add("--cluster", action="store_true", help="three of each private broker, as one cluster (for quorum-*)")
    add("--rounds", type=int, default=3, help="how often each broker runs each scenario (3)")
    add("--baseline", metavar="NAME", help="the broker that ratios refer to (rabbitmq, else the first)")
    add("--json", metavar="FILE", help="write everything that was measured to FILE")
    add("--work-dir", metavar="DIR", help="where private brokers keep their data (the temporary directory)")


def run_session(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    scenarios: list[Scenario],
    *,
    tls: bool = False,
    scale: float = 1.0,
    fresh: bool = False,
) -> int:
    """0 if every run was valid, 1 if one failed, 2 if no broker is there."""
    # A run that is terminated must stop its brokers too: turn the signal into an exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        try:
            brokers = _start_brokers(options, stack, parser, tls=tls)
        except (BenchError, OSError) as error:
            progress(f"bench: {error}")
            return 2
        if not brokers:
            progress("bench: no broker; give --amqpd, --rabbitmq or --url NAME=amqp://...")
            return 2
        names = [broker.name for broker in brokers]
        baseline = options.baseline or ("rabbitmq" if "rabbitmq" in names else names[0])
        outcomes: list[Outcome] = []
        try:
            run_all(
                brokers,
                scenarios,
                rounds=options.rounds,
                seconds=options.seconds,
                warmup_s=options.warmup,
                scale=scale,
                fresh=fresh,
                work_dir=options.work_dir,
                progress=progress,
                on_outcome=outcomes.append,
            )
        finally:
            # Also after an interrupt: what was measured until then is worth seeing.
            if outcomes:
                print("\n".join(f"{broker.name}: {broker.version}" for broker in brokers))
                print(table(outcomes, baseline))
            if options.json and outcomes:
                said = _about(options, brokers, scale=scale, fresh=fresh)
                Path(options.json).parent.mkdir(parents=True, exist_ok=True)
                Path(options.json).write_text(json.dumps(as_json(outcomes, baseline, said), indent=2) + "\n")
    return 1 if any(outcome.result is None for outcome in outcomes) else 0


def _start_brokers(
    options: argparse.Namespace, stack: ExitStack, parser: argparse.ArgumentParser, *, tls: bool
) -> list[Broker]:
    """All that the options name, running until `stack` closes; private ones listen for amqps with `tls`."""
    brokers = []
    pids = dict(_pair(text, parser) for text in options.pid)
    tls_urls = dict(_pair(text, parser) for text in options.tls_url)
    for name, kernel, audit in _private_amqpds(options) if options.amqpd else ():
        progress(f"starting a private {name}")
        private = (AmqpdCluster if options.cluster else PrivateAmqpd)(
            options.work_dir, tls=tls, kernel=kernel, name=name, audit=audit
        )
        brokers.append(stack.enter_context(private))
        progress(f"    {name} is {brokers[-1].version}")
    if options.rabbitmq:
        try:
            script = find_rabbitmq()
            if script is None:
                progress("installing rabbitmq-server")
                script = install_rabbitmq()
            progress("starting a private rabbitmq-server")
            brokers.append(
                stack.enter_context(
                    (RabbitmqCluster if options.cluster else PrivateRabbitmq)(script, options.work_dir, tls=tls)
                )
            )
        except (BenchError, OSError) as error:
            progress(f"bench: going on without RabbitMQ: {error}")
    for text in options.url:
        name, url = _pair(text, parser)
        for each in filter(None, (url, tls_urls.get(name))):
            try:
                Address.parse(each)
            except ValueError as error:
                parser.error(str(error))
        with Wire(url) as wire:
            said = wire.server_properties
        version, product = str(said.get("version", "")), str(said.get("product", "")).lower()
        tls_url = tls_urls.get(name) or (url if url.startswith("amqps:") else "")
        pid = int(pids[name]) if name in pids else None
        brokers.append(Broker(name, url, pid, version, tls_url=tls_url, product=product))
    names = [broker.name for broker in brokers]
    if len(set(names)) != len(names):
        parser.error(f"two brokers have one name: {', '.join(names)}")
    return brokers


def _private_amqpds(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(name of the broker, its kernel, its level of audit) of every private amqpd."""
    if options.kernel == "both":
        kernels = [("amqpd", "cython"), ("amqpd-python", "python")]
    else:
        kernels = [("amqpd", options.kernel)]
    levels = [level.strip() for level in options.audit.split(",") if level.strip()]
    if not levels:
        return [(name, kernel, "") for name, kernel in kernels]
    return [(f"{name}-{level}", kernel, level) for name, kernel in kernels for level in levels]


def _pair(text: str, parser: argparse.ArgumentParser) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        parser.error(f"NAME=VALUE was expected, not {text!r}")
    return name, value


def _about(options: argparse.Namespace, brokers: list[Broker], *, scale: float, fresh: bool) -> dict[str, Any]:
    """What a results file says of the run."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_average_1min": os.getloadavg()[0],
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "data_file_system": file_system_of(options.work_dir),
        "seconds": options.seconds,
        "warmup_s": options.warmup,
        "rounds": options.rounds,
        "scale": scale,
        "fresh": fresh,
        "brokers": [{"name": broker.name, "version": broker.version} for broker in brokers],
    }


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
