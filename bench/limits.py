"""What this machine's sockets can do with no broker at all: `python -m bench.limits [--json FILE]`.

What comes in: seconds and rounds. What goes out: per size of body (and for those of `mixed`), plain and over TLS,
the messages a second that a process which only receives and sends can carry from a generator to a consumer; a
table, and JSON for `bench.document`. Rules: 1. the same generator, sizes and frames as in the scenarios, so that
the figures stand beside theirs; 2. the relay has one core: a broker with one thread that must also look at messages
is below it; 3. median of the rounds.
Not here: the three processes (`roles/relaying.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.brokers.processes import free_port
from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.report import number_text
from bench.scenarios.cost import per_second
from bench.tls import Certificate, can_make_certificates, make_certificate

WARMUP_SECONDS = 0.5
DONE_SECONDS_MAX = 60.0
RECIPE = {"kind": "application"}
# name: (bytes of a body, 0 for those of a recipe; over TLS; the scenario that it bounds)
CASES = {
    "plain-100": (100, False, "stream"),
    "plain-mixed": (0, False, "mixed"),
    "plain-64k": (65_536, False, "large-64k"),
    "tls-100": (100, True, "tls-stream"),
    "tls-64k": (65_536, True, ""),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """Medians of the rounds; `relay_cpu` is the relay's share of one core, `message_bytes` with all framing."""

    name: str
    scenario: str
    body_bytes: int
    message_bytes: int
    tls: bool
    messages_per_s: float
    mb_per_s: float
    relay_cpu: float
    messages_per_relay_cpu_s: float


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    limits = []
    with tempfile.TemporaryDirectory(prefix="bench-limits-") as directory:
        files = make_certificate(Path(directory)) if can_make_certificates() else None
        for name, (_, tls, _) in CASES.items():
            if tls and files is None:
                print(f"bench: {name} is passed over: no trustme", file=sys.stderr)
                continue
            try:
                runs = [measure(name, files, options.seconds) for _ in range(options.rounds)]
            except (BenchError, OSError) as error:
                print(f"bench: {name}: {error}", file=sys.stderr)
                return 1
            limits.append(_median(runs))
    print(table(limits))
    if options.json:
        about = {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "seconds": options.seconds,
            "rounds": options.rounds,
        }
        value = {"about": about, "limits": [asdict(limit) for limit in limits]}
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps(value, indent=2) + "\n")
    return 0


def measure(name: str, files: Certificate | None, seconds: float) -> Limit:
    """One run of one case. Raises BenchError if a process fails or bytes are missing at the end."""
    body_bytes, tls, scenario = CASES[name]
    port = free_port()
    url, server = f"amqp://127.0.0.1:{port}/", dict[str, Any]()
    if tls and files is not None:
        url = f"amqps://127.0.0.1:{port}/?cacertfile={files.ca}"
        server = {"certificate": str(files.certificate), "key": str(files.key)}
    with Crew() as crew:
        middle = crew.start("relay", port=port, **server)
        eater = crew.start("drain", url=url)
        feeder = crew.start("pour", url=url, body_bytes=body_bytes, recipe=None if body_bytes else RECIPE)
        start = now() + WARMUP_SECONDS
        crew.go(start, start + seconds)
        reports = crew.expect("done", [feeder, middle, eater], seconds + DONE_SECONDS_MAX)
    poured, relayed, drained = reports
    if poured["bytes"] != drained["bytes"]:
        raise BenchError(f"{poured['bytes']} bytes were poured, {drained['bytes']} came out")
    size, rate = poured["message_bytes"], per_second(drained["window"], "count")
    share = per_second(relayed["window"], "cpu_s")
    a_cpu_s = per_second(relayed["window"], "count") / size / share if share else 0.0
    return Limit(name, scenario, body_bytes, round(size), tls, rate / size, rate / 1e6, share, a_cpu_s)


def _median(runs: list[Limit]) -> Limit:
    middle = {
        name: median(getattr(run, name) for run in runs)
        for name in ("messages_per_s", "mb_per_s", "relay_cpu", "messages_per_relay_cpu_s")
    }
    return Limit(**(asdict(runs[0]) | middle))


def table(limits: list[Limit]) -> str:
    head = ["case", "body", "messages/s", "MB/s", "relay cpu", "msg/relay cpu s", "bounds"]
    rows = [head] + [
        [
            limit.name,
            str(limit.body_bytes or "40-600"),
            number_text(limit.messages_per_s),
            number_text(limit.mb_per_s),
            f"{limit.relay_cpu:.0%}",
            number_text(limit.messages_per_relay_cpu_s),
            limit.scenario,
        ]
        for limit in limits
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    left = {0, len(head) - 1}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.limits", description="What sockets can do without a broker.")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is run (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds of a run (3)")
    parser.add_argument("--json", metavar="FILE", help="write the limits to FILE, for bench.document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
