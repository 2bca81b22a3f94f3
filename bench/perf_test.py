"""An outside judge: PerfTest, the load generator of RabbitMQ (Java): `python -m bench.perf_test --amqpd --rabbitmq`.

What comes in: brokers, as for `python -m bench`. What goes out: a table of rates, confirm latencies and ratios, and
JSON that `bench.document` takes. Rules: 1. PerfTest is found by its Maven coordinates, in the local repository or
through Maven as it is set up; 2. its first seconds are its own warm-up (a JVM compiles) and are left out; the rate
is that of the intervals after them, a percentile the median of theirs; 3. brokers take turns as in `runner.py`; 4.
a run in which PerfTest failed, or confirmed or received nothing, has no figure. Messages are not checked one by
one: that is what our own scenarios are for.
Not here: our own generator (`scenarios/`), starting brokers (`brokers/`).
"""

from __future__ import annotations

import argparse
import csv
import resource
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pamqp import commands

from bench.brokers.processes import said_by
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, result_of
from bench.session import add_broker_options, progress, run_session
from bench.wire import Wire

COORDINATES = ("com.rabbitmq", "perf-test", "2.22.1")
MAIN = "com.rabbitmq.perf.PerfTest"
QUEUE = "bench-perf-test"
RESOLVE_SECONDS_MAX = 300.0
END_SECONDS_MAX = 60.0
"""How long PerfTest may take beyond the time it was given."""


@dataclass(frozen=True, slots=True)
class Run:
    """`arguments` of PerfTest; `paced`: its rate is given, so only latencies are compared."""

    arguments: str
    paced: bool = False


PERSISTENT = f"-f persistent -u {QUEUE} -ad false"
RUNS = {
    "perf-test-1x1-c1": Run(f"-x 1 -y 1 -c 1 {PERSISTENT}"),
    "perf-test-4x4-c1000": Run(f"-x 4 -y 4 -c 1000 {PERSISTENT}"),
    "perf-test-r1000-c100": Run(f"-x 1 -y 1 -r 1000 -c 100 {PERSISTENT}", paced=True),
    "perf-test-1x1-auto": Run(f"-x 1 -y 1 -a -u {QUEUE} -ad false"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.runs if name not in RUNS]
    if unknown:
        parser.error(f"unknown run {', '.join(unknown)}; there are {', '.join(RUNS)}")
    try:
        command = resolve()
    except (BenchError, OSError) as error:
        progress(f"bench: {error}")
        return 2
    return run_session(parser, options, [scenario(command, name) for name in options.runs or RUNS])


def scenario(command: list[str], name: str) -> Scenario:
    """A run as a scenario; `command` begins PerfTest."""
    run = RUNS[name]
    return Scenario(name, f"PerfTest {run.arguments}", lambda setting: _measure(command, run, setting))


def resolve() -> list[str]:
    """The command that begins PerfTest. Raises BenchError without Java or Maven, or if Maven cannot find it."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if java is None or maven is None:
        raise BenchError("PerfTest needs java and mvn on the path (Debian: default-jre-headless, maven)")
    group, artifact, version = COORDINATES
    pom = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
        <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging>
        <dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>
        <version>{version}</version></dependency></dependencies></project>"""
    with tempfile.TemporaryDirectory(prefix="bench-perf-test-") as directory:
        place, out = Path(directory) / "pom.xml", Path(directory) / "classpath"
        place.write_text(pom)
        build = [maven, "--batch-mode", "--quiet", "-f", str(place)]
        build += ["dependency:build-classpath", f"-Dmdep.outputFile={out}"]
        try:
            said_by([*build, "--offline"], {}, failure="not in the local repository", seconds_max=RESOLVE_SECONDS_MAX)
        except BenchError:
            failure = f"Maven cannot resolve {':'.join(COORDINATES)}"
            said_by(build, {}, failure=failure, seconds_max=RESOLVE_SECONDS_MAX)
        return [java, "-cp", out.read_text().strip(), MAIN]


def _measure(command: list[str], run: Run, setting: Setting) -> Result:
    """The queue is deleted after the run."""
    run_s = round(setting.warmup_s + setting.seconds)
    with tempfile.TemporaryDirectory(prefix="bench-perf-test-") as directory:
        file = Path(directory) / "out.csv"
        # The Java client takes a slash at the end for a virtual host without a name.
        whole = [
            *command,
            "-h",
            setting.url.removesuffix("/"),
            "-z",
            str(run_s),
            "-i",
            "1",
            "-o",
            str(file),
            *run.arguments.split(),
        ]
        first, begun_cpu_s = look(setting.pid), _children_cpu_s()
        try:
            said_by(whole, {}, failure="PerfTest failed", seconds_max=run_s + END_SECONDS_MAX)
        finally:
            with Wire(setting.url) as wire:
                wire.call(commands.Queue.Delete(queue=QUEUE), commands.Queue.DeleteOk)
        last = look(setting.pid)
        figures, received = read(file.read_text(), setting.warmup_s, paced=run.paced)
    window = {"seconds": last.at - first.at, "count": received, "cpu_s": _children_cpu_s() - begun_cpu_s}
    return result_of(figures, {"perf-test": window}, received, first, last, {"received": received})


def read(text: str, warmup_s: float, *, paced: bool) -> tuple[list[Figure], int]:
    """Figures of the intervals after the warm-up, and how many messages were received in all of the run. `text` is
    what PerfTest's `--output-file` wrote: a row for each interval. Raises BenchError if there is nothing in it."""
    rows = list(csv.DictReader(text.splitlines()))
    begins = [0.0, *(float(row["time (s)"]) for row in rows)]
    spans = [(row, end - start) for row, start, end in zip(rows, begins, begins[1:], strict=False)]
    kept = [(row, span) for (row, span), start in zip(spans, begins, strict=False) if start >= warmup_s - 0.5]
    whole_s = sum(span for _, span in kept)

    def rate(column: str) -> float:
        return sum(float(row[column] or 0) * span for row, span in kept) / whole_s if whole_s else 0.0

    published, confirmed, received = (rate(f"{name} (msg/s)") for name in ("published", "confirmed", "received"))
    if not published or not received:
        raise BenchError(f"PerfTest published {published:g} and received {received:g} messages a second")
    figures = [Figure("rate", min(received, confirmed or received), "msg/s", compared=not paced)]
    for name, column in (("p50", "median confirm latency (µs)"), ("p99", "99th p. confirm latency (µs)")):
        values = [float(row[column]) for row, _ in kept if row.get(column)]
        if confirmed and not values:
            raise BenchError("PerfTest has no confirm latencies")
        figures += [Figure(f"confirm {name}", median(values) / 1e3, "ms", False)] if confirmed else []
    figures.append(Figure("received of published", 100 * received / published, "%", compared=False))
    total = round(sum(float(row["received (msg/s)"] or 0) * span for row, span in spans))
    return figures, total


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.perf_test", description="PerfTest on brokers side by side.")
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help=f"{', '.join(RUNS)}; all without any")
    add_broker_options(parser)
    add("--seconds", type=float, default=10.0, help="measured seconds of a run (10)")
    add("--warmup", type=float, default=5.0, help="seconds before them (5)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
