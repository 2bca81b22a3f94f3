"""The command line: `python -m bench [SCENARIO ...] --amqpd --rabbitmq --url NAME=amqp://...`.

What comes in: arguments. What goes out: progress on standard error, the table on standard output, JSON in a
file; exit code 0 if every run was valid, 1 if one failed, 2 for wrong arguments or if no broker is there.
Not here: everything else; the walk is in `bench/__init__.py`.
"""

from __future__ import annotations

import argparse
import sys

from bench.scenarios import SCENARIOS, Scenario
from bench.session import add_broker_options, progress, run_session
from bench.tls import can_make_certificates


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        width = max(map(len, SCENARIOS))
        print("\n".join(f"{name.ljust(width)}  {scenario.summary}" for name, scenario in SCENARIOS.items()))
        return 0
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    scenarios = [SCENARIOS[name] for name in options.scenarios or _quick()]
    return run_session(
        parser, options, scenarios, tls=_wants_tls(scenarios), scale=options.scale, fresh=options.fresh
    )


def _quick() -> list[str]:
    """What is run when nothing is named."""
    return [name for name, scenario in SCENARIOS.items() if not (scenario.takes_long or scenario.needs_cluster)]


def _wants_tls(scenarios: list[Scenario]) -> bool:
    """Whether private brokers listen for TLS: only when something that runs goes there."""
    if not any(scenario.needs_tls for scenario in scenarios):
        return False
    if not can_make_certificates():
        progress("bench: no trustme, so private brokers have no TLS (pip install trustme)")
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description="Measure AMQP 0-9-1 brokers side by side.")
    add = parser.add_argument
    add("scenarios", nargs="*", metavar="SCENARIO", help="names from --list; all the quick ones without any")
    add("--list", action="store_true", help="list the scenarios and exit")
    add_broker_options(parser)
    add(
        "--fresh",
        action="store_true",
        help="a process of its own for every run of a private broker (for differences of some percent)",
    )
    add("--seconds", type=float, default=5.0, help="measured seconds of a run (5)")
    add("--warmup", type=float, default=1.0, help="seconds before them (1)")
    add("--scale", type=float, default=1.0, help="factor on what is counted in messages or connections (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
