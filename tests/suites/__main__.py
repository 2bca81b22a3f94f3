"""`python -m tests.suites SUITE CHECKOUT`: one suite against both brokers, and what differs.

What comes in: the arguments; `--python` names the interpreter of the suite's own environment.
What goes out: the table, each test that passes on one broker only, the folder with logs and results; exit code
0 when amqpd passes all that RabbitMQ passes, 1 when not, 2 when the suite could not be run.
Rules: 1. RabbitMQ first, then amqpd, one after the other, each in a network of its own. 2. What amqpd logs as an
error is shown: a test may pass although the broker stumbled.
Not here: the suites (`catalogue.py`), reading and comparing results (`verdicts.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.broker_process import REPOSITORY, BrokerProcess
from tests.clients.rabbitmq_process import SCRIPTS, RabbitMQProcess

from .catalogue import DOCKER_PORT, PORT, SUITES, TLS_PORT, Certificates, Suite
from .docker_stand_in import docker_stand_in
from .network import isolated
from .verdicts import FAILED, MISSING, Outcomes, only_on, outcomes, reasons, table

BROKERS: dict[str, type[BrokerProcess]] = {"RabbitMQ": RabbitMQProcess, "amqpd": BrokerProcess}
LOGGED_ERROR = re.compile(r"level=(error|critical)|Traceback")
ERRORS_SHOWN_MAX = 20


def main() -> int:
    options = arguments()
    options.results.mkdir(parents=True, exist_ok=True)
    if options.inside:
        return run_inside(options)
    runs: dict[str, Outcomes] = {}
    for broker in options.broker or BROKERS:
        folder = options.results / broker
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*"):
            if old.is_file():
                old.unlink()
        again = [sys.executable, "-m", "tests.suites", *sys.argv[1:], "--inside", broker]
        subprocess.run(isolated([*again, "--results", str(options.results)]), check=False)
        try:
            runs[broker] = outcomes(folder)
        except ValueError as error:
            print(f"{options.suite} on {broker}: {error}; its output is in {folder}", file=sys.stderr)
            return 2
    return report(options, runs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path, help="folder of the suite's repository")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment the suite runs in")
    parser.add_argument("--results", type=Path, help="where results and logs go (default: a temporary folder)")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="this broker only")
    parser.add_argument("--with", dest="more", action="append", default=[], help="one more argument of the suite")
    parser.add_argument("--inside", choices=BROKERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    options.results = (options.results or Path(tempfile.mkdtemp(prefix=f"suite-{options.suite}-"))).resolve()
    return options


def run_inside(options: argparse.Namespace) -> int:
    """One suite on one broker, with loopback as the only network."""
    suite, folder = SUITES[options.suite], options.results / options.inside
    # Whoever ends the run ends its broker too: the stack below is left in any case.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="suite-broker-")))
        certificates = suite.certificates(options.checkout, scratch) if suite.certificates else made_up(scratch)
        broker = make_broker(options.inside, scratch, certificates)
        if options.inside != "RabbitMQ":
            broker.environment |= suite.settings
        stack.callback(lambda: (folder / "broker.log").write_text(broker.log))
        stack.callback(broker.close)
        broker.start()
        if suite.docker:
            stack.enter_context(docker_stand_in(DOCKER_PORT))
        run_suite(suite, options, folder, rabbitmqctl(broker, scratch))
        broker.terminate()
    return 0


def rabbitmqctl(broker: BrokerProcess, scratch: Path) -> Path:
    """A command for suites that ask for one: RabbitMQ's for this node, or what translates it for this amqpd."""
    if isinstance(broker, RabbitMQProcess):
        variables, command = broker.child_environment(), f"{SCRIPTS}/rabbitmqctl"
    else:
        variables = {**broker.child_environment(), "AMQPD_DATA_DIR": str(broker.data_dir)}
        command = f"{shlex.quote(sys.executable)} -m tests.suites.rabbitmqctl"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name.isidentifier()]
    script = scratch / "rabbitmqctl"
    script.write_text("\n".join(["#!/bin/sh", f"cd {REPOSITORY}", *lines, f'exec {command} "$@"', ""]))
    script.chmod(0o755)
    return script


def run_suite(suite: Suite, options: argparse.Namespace, folder: Path, control: Path) -> None:
    """Output goes to a file; a suite that does not end is ended, and its tests are missing then."""
    places = {"python": options.python, "checkout": str(options.checkout), "results": str(folder)}
    places["rabbitmqctl"] = str(control)
    reports = options.checkout / suite.reports
    if suite.reports:
        shutil.rmtree(reports, ignore_errors=True)
    command = [word.format(**places) for word in suite.command]
    if "pytest" in command:
        command += [f"--deselect={test}" for test in suite.left_out]
    command += options.more
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMQPD_", "PYTHON"))}
    environment = {**kept, **{name: value.format(**places) for name, value in suite.environment.items()}}
    with (folder / suite.output).open("w") as output:
        try:
            subprocess.run(
                command,
                cwd=options.checkout,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=suite.time_limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{options.suite} on {options.inside}: ended after {suite.time_limit_s:.0f} s", file=sys.stderr)
    if suite.reports and reports.is_dir():
        for file in reports.glob("*.xml"):
            shutil.copy(file, folder)


def made_up(scratch: Path) -> Certificates:
    import trustme  # of the development environment; only suites without certificates of their own need it

    files = Certificates(scratch / "ca.pem", scratch / "server.pem", scratch / "server.key")
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(files.authority))
    server.cert_chain_pems[0].write_to_path(str(files.certificate))
    server.private_key_pem.write_to_path(str(files.key))
    return files


def make_broker(name: str, scratch: Path, files: Certificates) -> BrokerProcess:
    if name == "RabbitMQ":
        lines = {
            "listeners.ssl.1": f"127.0.0.1:{TLS_PORT}",
            "ssl_options.cacertfile": files.authority,
            "ssl_options.certfile": files.certificate,
            "ssl_options.keyfile": files.key,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
        }
        return RabbitMQProcess(scratch / "data", port=PORT, arguments=[f"{key} = {it}" for key, it in lines.items()])
    settings = {
        "AMQPD_TLS_PORT": str(TLS_PORT),
        "AMQPD_TLS_CA": str(files.authority),
        "AMQPD_TLS_CERTIFICATE": str(files.certificate),
        "AMQPD_TLS_KEY": str(files.key),
        "AMQPD_TLS_VERIFY_PEER": "optional",
    }
    return BrokerProcess(scratch / "data", port=PORT, environment=settings)


def report(options: argparse.Namespace, runs: dict[str, Outcomes]) -> int:
    print(f"\n{options.suite}: results and logs are in {options.results}\n{table(runs)}")
    for test, why in SUITES[options.suite].left_out.items():
        print(f"left out on both: {test}: {why}")
    for name, value in SUITES[options.suite].settings.items():
        print(f"amqpd ran with {name}={value}")
    log = (options.results / "amqpd" / "broker.log").read_text() if "amqpd" in runs else ""
    for line in [line for line in log.splitlines() if LOGGED_ERROR.search(line)][:ERRORS_SHOWN_MAX]:
        print(f"amqpd logged: {line}")
    if len(runs) < len(BROKERS):
        return 1 if FAILED in next(iter(runs.values())).values() else 0
    for name in only_on(runs["amqpd"], runs["RabbitMQ"]):
        print(f"passes on amqpd only: {name}")
    missed = only_on(runs["RabbitMQ"], runs["amqpd"])
    said = reasons(options.results / "amqpd")
    for name in missed:
        print(f"PASSES ON RABBITMQ ONLY: {name} ({runs['amqpd'].get(name, MISSING)})\n    {said.get(name, '')!r}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
