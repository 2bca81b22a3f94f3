"""`amqpd serve`: runs the broker until it is told to stop.

What comes in: flags of the command line, above the settings of file and environment. What goes out: exit code
0 after a drain, or a start that a signal broke off; 1 when the broker could not start (or a second signal came), 2
for a wrong setting, 70 when the node had to stop, 75 when a cluster's store did not answer for a minute.
Rules: 1. A failure is one sentence on standard error. 2. An exception that nobody foresaw is shown with its
traceback: it is a bug, and the node stops.
Not here: the wiring of the broker (`broker.py`), signals (`process/signals.py`).
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog
import trio

from amqpd.config import Settings
from amqpd.errors import (
    EXIT_NODE_FAILURE,
    Failure,
    NodeFailure,
    StartupError,
    disk_failure,
    find_failure,
    first_reason,
    is_consequence,
    leaves,
)
from amqpd.faults import ENDS_NODE
from amqpd.process.config_sources import load_settings
from amqpd.process.logs import configure_logs, recent_lines, unblock_standard_error
from amqpd.process.signals import Stop, watch_stop_signals

if TYPE_CHECKING:
    from amqpd.management.face import Face
    from amqpd.management.figures.recent import Recent

# The shell's code for Ctrl-C; only in the moment before `watch_stop_signals` listens.
EXIT_INTERRUPTED = 130

log = structlog.get_logger(component="serve")


@click.command(
    epilog="""\b
Examples:
  amqpd serve                                  on this machine only, port 5672
  amqpd serve --bind 0.0.0.0 --bind ::         on every interface
  amqpd serve --port 5673 --data-dir ./data    a second broker, for a try
  amqpd serve --data-dir /a/amqpd --data-dir /b/amqpd --data-dir /c/amqpd
                                               on three disks: one may fail, fill up or
                                               be replaced while the broker runs
  AMQPD_LOG_LEVEL=debug amqpd serve            any setting, from the environment
  amqpd serve --server-product RabbitMQ --server-version 3.13.7
                                               for libraries that look at these two

kombu (Celery), for one, shares a channel's prefetch among its consumers only with a
"RabbitMQ" of version 3.3 to 3.x; what amqpd does is the same under any name.

A flag wins over the environment, the environment over the file. SIGTERM or Ctrl-C
finishes what was begun and ends; a second one ends at once."""
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--bind", multiple=True, metavar="ADDR", help="Address to listen on; repeat it for several.")
@click.option("--port", metavar="N", help="Port for AMQP without TLS; 0 lets the system choose.")
@click.option(
    "--data-dir",
    multiple=True,
    metavar="DIR",
    help="Where messages and definitions are kept; repeat it for several disks, of which most have to work.",
)
@click.option(
    "--node-name", metavar="NAME", help="What this broker is called.  [default: amqpd@ and the host's name]"
)
@click.option("--log-level", metavar="L", help="debug, info, warning or error.")
@click.option("--server-product", metavar="NAME", help="What clients are told that this is.  [default: amqpd]")
@click.option("--server-version", metavar="V", help="The version that they are told.  [default: amqpd's own]")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start once although files have less than was confirmed; without it amqpd says what is missing and ends.",
)
@click.pass_context
def serve(context: click.Context, /, config: Path | None, accept_loss: bool, **flags: Any) -> None:
    """Run the broker.

    Without any setting it listens on 127.0.0.1 and ::1, port 5672, and keeps everything on disk in the state
    directory of this user. amqpd.example.toml has every setting with its default.
    """
    context.exit(run(load_settings(config, flags), accept_loss=accept_loss))


def run(settings: Settings, *, accept_loss: bool = False) -> int:
    """Serves until a signal; returns the exit code. `accept_loss`: see `broker.serve`."""
    _keep_standard_descriptors()
    _leave_out_pandas()
    unblock_standard_error()
    recent = recent_lines()
    configure_logs(settings.log_level, recent=recent)
    # Journal and metadata store make files of their own: nobody else is to read them.
    os.umask(0o077)
    # Not info: when it cannot start, the operator reads one sentence and nothing else.
    log.debug(
        "starting",
        data_dir=",".join(map(str, settings.directories)),
        bind=",".join(settings.bind),
        port=settings.port,
    )
    try:
        trio.run(_main, settings, accept_loss, recent)
    except BaseException as error:  # noqa: BLE001 - the last door: everything is reported, and ends the process
        return report(error)
    return 0


def _keep_standard_descriptors() -> None:
    """Started with standard error closed (`2>&-`), the first file that is opened would get its number, and what is
    written to it."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


class _WithoutPandas(MetaPathFinder):
    """An import finder that hides pandas: where it is installed, pyarrow imports it to ask whether a list is one
    of its series: sixty megabytes in a broker that has no use for it."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            # Not None in `sys.modules`: compiled code takes that for the module.
            raise ModuleNotFoundError("the broker does without pandas", name=name)


def _leave_out_pandas() -> None:
    if not any(isinstance(finder, _WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutPandas())


async def _main(settings: Settings, accept_loss: bool, recent: Recent[str]) -> None:
    from amqpd import broker  # SQLAlchemy and all: only when it is needed

    stop = Stop(settings.drain_timeout_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch_stop_signals, stop)
        await broker.serve(settings, stop, accept_loss=accept_loss, face=_face(settings, recent))
        nursery.cancel_scope.cancel()


def _face(settings: Settings, recent: Recent[str]) -> Face | None:
    """The management API, if it is on."""
    if not settings.http.enabled:
        return None
    from amqpd_admin.server import HttpFace  # FastAPI and all: only when it is needed

    return HttpFace(settings, recent)


def report(error: BaseException) -> int:
    """Tells the operator why the broker ended; returns the exit code.

    A `StartupError` is for the one who typed the command: its sentence alone. What stops a node that was
    serving goes to the log, and so does everything else that broke in the same nursery."""
    failure = find_failure(error)
    if failure is None:
        if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
            return EXIT_INTERRUPTED
        sentence = disk_failure(error)
        if sentence is None:
            log.critical("stopped by a bug", reason=repr(first_reason(error)), exc_info=error)
            return EXIT_NODE_FAILURE
        failure = NodeFailure(sentence)
        failure.__cause__ = error
    for other in _beside(failure, error):
        log.warning("failed beside it", error=repr(other))
    if isinstance(failure, StartupError):
        click.echo(f"amqpd: {failure.sentence}", err=True)
    else:
        log.critical("node stopped", reason=failure.sentence)
    return failure.exit_code


def _beside(failure: Failure, error: BaseException) -> list[BaseException]:
    """What broke and is neither the failure, nor what the failure says, nor a consequence of it: who uses a disk that
    failed fails too."""
    found = [*leaves(error), *(leaves(failure.__cause__) if failure.__cause__ is not None else ())]
    return [
        each
        for each in dict.fromkeys(found)
        if not isinstance(each, (Failure, *ENDS_NODE))
        and not is_consequence(each)
        and (getattr(each, "strerror", None) or str(each)) not in failure.sentence
    ]
