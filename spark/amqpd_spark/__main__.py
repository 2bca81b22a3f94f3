"""The command line: `amqpd-spark JOB --input DIR --output DIR`.

What comes in: arguments. What goes out: an exit code: 0; 1 when a job found what must not be; 2 for everything else;
130 after Ctrl-C.
Rules: a job's module is imported when it runs, so `--help` starts no JVM.
Not here: the jobs, one module each; what becomes of errors (`door.py`).
"""

from __future__ import annotations

import importlib
import importlib.util

import click

from amqpd_spark import door

# Job -> its one line in the list of jobs; the module has the job's name, except that of `all`.
JOBS = {
    "all": "all jobs below that look at the whole log, in one Spark, and the page",
    "conservation": "account for every message; exit 1 when one is missing",
    "slo": "latencies, errors and redeliveries against objectives",
    "trace": "one message's whole history",
    "security": "failed log-ins, refused permissions, new addresses, privileges",
    "usage": "messages and bytes by user, virtual host, queue and day",
    "compact": "small files into large ones, sorted, duplicates left out",
    "generate": "make audit data of any size, with planted faults",
    "prepare": "make later starts on this machine quicker: once",
    "report": "a page with charts from the other jobs' tables",
}
_MODULES = {"all": "all_jobs"}


class _Jobs(door.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        if importlib.util.find_spec("pyspark") is None:
            raise door.Refused("PySpark is not installed: pip install '.[spark]' in a checkout of amqpd")
        command: click.Command = importlib.import_module(f"amqpd_spark.{_MODULES.get(cmd_name, cmd_name)}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl(list(JOBS.items()))


@click.group(cls=_Jobs)
def main() -> None:
    """Jobs on amqpd's audit log, with PySpark; docs/audit.md describes the log and each job's tables."""


if __name__ == "__main__":
    main(prog_name="amqpd-spark")
