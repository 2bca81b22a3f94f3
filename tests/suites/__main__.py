"""`python -m tests.suites SUITE CHECKOUT`: one suite against both brokers, and what differs.

What comes in: the arguments; `--python` names the interpreter of the suite's own environment, `--host` the address
that `localhost` is for the suite.
What goes out: the table, each test that passes on one broker only, the folder with logs and results; exit code
0 when amqpd passes all that RabbitMQ passes, 1 when not, 2 when the suite could not be run.
Rules: 1. RabbitMQ first, then amqpd, one after the other, each in a network of its own. 2. What amqpd logs as an
error is shown: a test may pass although the broker stumbled. 3. Both brokers listen on 127.0.0.1 and on ::1, and
their logs say over which of them the suite came.
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
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.admin.both_brokers import ManagedRabbitMQ
from tests.clients.broker_process import REPOSITORY, BrokerProcess
from tests.clients.rabbitmq_process import NODE_NAME, PLUGINS, SCRIPTS, RabbitMQProcess

from . import preloaded
from .catalogue import DOCKER_PORT, MANAGEMENT_PORT, PORT, SUITES, TLS_PORT, Certificates, Suite
from .docker_stand_in import docker_stand_in
from .network import IPV4, IPV6, isolated, with_hosts_of, with_localhost
from .node import operated
from .verdicts import MISSING, Outcomes, exit_code, only_on, outcomes, reasons, table

BROKERS: dict[str, type[BrokerProcess]] = {"RabbitMQ": RabbitMQProcess, "amqpd": BrokerProcess}
LOGGED_ERROR = re.compile(r"level=(error|critical)|Traceback")
ERRORS_SHOWN_MAX = 20
LOGS = ("broker.log", "broker-file.log")
BROKER_SOCKET, CONTROL_SOCKET = "broker.socket", "control.socket"
# What each broker logs of a connection that logged in, with its two ends.
LOGGED_IN = re.compile(
    r'event=connection_open .*connection="(\S+):\d+ -> |connection <\S+> \((\S+):\d+ -> .*authenticated'
)
# What the tests of a suite leave running when their time is over is ended with them.
END_DEADLINE_S = 10.0


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
            if broker == "RabbitMQ":
                return 2
            # A broker on which the suite does not get as far as a report has failed all of it.
            runs[broker] = {}
    return report(options, runs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path, help="folder of the suite's repository")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment the suite runs in")
    parser.add_argument("--results", type=Path, help="where results and logs go (default: a temporary folder)")
    parser.add_argument("--host", choices=(IPV4, IPV6), default=IPV4, help="what localhost is (default: %(default)s)")
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
        broker = make_broker(options.inside, scratch, certificates, suite.plugins)
        if options.inside != "RabbitMQ":
            broker.environment |= suite.settings
        stack.callback(keep_logs, broker, folder)
        stack.callback(broker.close)
        broker.start()
        if suite.docker:
            stack.enter_context(docker_stand_in(DOCKER_PORT))
        stack.enter_context(operated(broker, scratch / BROKER_SOCKET))
        control = rabbitmqctl(broker, scratch, stack)
        for words in suite.setup:
            subprocess.run([str(control), *words], check=True, stdout=subprocess.DEVNULL)
        run_suite(suite, options, folder, control, scratch)
        # A suite that was cut short may have stopped it.
        if broker.running:
            broker.terminate()
    return 0


def keep_logs(broker: BrokerProcess, folder: Path) -> None:
    (folder / LOGS[0]).write_text(broker.log)
    for file in (broker.data_dir / "rabbitmq" / "log").glob(f"{NODE_NAME}.log"):
        shutil.copy(file, folder / LOGS[1])


def rabbitmqctl(broker: BrokerProcess, scratch: Path, stack: contextlib.ExitStack) -> Path:
    """A command for suites that ask for one: RabbitMQ's for this node, or what translates it for this amqpd."""
    script = scratch / "rabbitmqctl"
    if isinstance(broker, RabbitMQProcess):
        variables = broker.child_environment()
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name.isidentifier()]
        words = with_hosts_of(os.getpid(), REPOSITORY, [f"{SCRIPTS}/rabbitmqctl"])
    else:
        places = {"AMQPD_DATA_DIR": str(broker.data_dir), "SUITE_BROKER": str(scratch / BROKER_SOCKET)}
        words = [sys.executable, "-I", "-S", preloaded.__file__, str(scratch / CONTROL_SOCKET)]
        stack.enter_context(preloaded.preloaded(scratch / CONTROL_SOCKET, broker.child_environment() | places))
        lines = []
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.join(words)} "$@"', ""]))
    script.chmod(0o755)
    return script


def run_suite(suite: Suite, options: argparse.Namespace, folder: Path, control: Path, scratch: Path) -> None:
    """Output goes to a file; a suite that does not end is ended, and its tests are missing then."""
    places = {"python": options.python, "checkout": str(options.checkout), "results": str(folder)}
    places |= {"rabbitmqctl": str(control), "host": options.host}
    places["url_host"] = f"[{options.host}]" if options.host == IPV6 else options.host
    places |= {"certificates": str(scratch)}
    reports = options.checkout / suite.reports
    if suite.reports:
        shutil.rmtree(reports, ignore_errors=True)
    command = [filled(word, places) for word in suite.command]
    if "pytest" in command:
        command += [f"--deselect={test}" for test in suite.left_out]
    command += options.more
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMQPD_", "PYTHON"))}
    environment = {**kept, **{name: filled(value, places) for name, value in suite.environment.items()}}
    with (folder / suite.output).open("w") as output:
        process = subprocess.Popen(
            with_localhost(options.host, command, scratch),
            cwd=options.checkout / suite.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(suite.time_limit_s)
        except subprocess.TimeoutExpired:
            print(f"{options.suite} on {options.inside}: ended after {suite.time_limit_s:.0f} s", file=sys.stderr)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_DEADLINE_S)
    if suite.reports and reports.is_dir():
        for file in reports.glob("*.xml"):
            shutil.copy(file, folder)


def filled(text: str, places: Mapping[str, str]) -> str:
    """Braces with another word between them belong to the suite's command."""
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def made_up(scratch: Path) -> Certificates:
    """The server's, and a client's beside it, in files with the names that tls-gen gives them."""
    import trustme  # of the development environment; only suites without certificates of their own need it

    files = Certificates(
        *(scratch / f"{name}.pem" for name in ("ca_certificate", "server_certificate", "server_key"))
    )
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(files.authority))
    for end, names in (("server", ("localhost", IPV4, IPV6)), ("client", ("client.localhost",))):
        issued = authority.issue_cert(*names)
        issued.cert_chain_pems[0].write_to_path(str(scratch / f"{end}_certificate.pem"))
        issued.private_key_pem.write_to_path(str(scratch / f"{end}_key.pem"))
    return files


def make_broker(name: str, scratch: Path, files: Certificates, plugins: tuple[str, ...]) -> BrokerProcess:
    """`plugins`: RabbitMQ's. With any, both have the management API."""
    if name == "RabbitMQ":
        lines = {
            "listeners.tcp.1": f"{IPV4}:{PORT}",
            "listeners.tcp.2": f"{IPV6}:{PORT}",
            "listeners.ssl.1": f"{IPV4}:{TLS_PORT}",
            "listeners.ssl.2": f"{IPV6}:{TLS_PORT}",
            "ssl_options.cacertfile": files.authority,
            "ssl_options.certfile": files.certificate,
            "ssl_options.keyfile": files.key,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
        }
        # An address in the environment would take the place of the listeners.
        nowhere = {"RABBITMQ_NODE_IP_ADDRESS": "", "RABBITMQ_NODE_PORT": ""}
        arguments = [f"{key} = {it}" for key, it in lines.items()]
        if not plugins:
            return RabbitMQProcess(scratch / "data", port=PORT, arguments=arguments, environment=nowhere)
        # Statistics each second: suites wait a few seconds for them, as their authors' machines are fast.
        arguments += [f"management.tcp.port = {MANAGEMENT_PORT}", "collect_statistics_interval = 1000"]
        managed = ManagedRabbitMQ(scratch / "data", port=PORT, arguments=arguments, environment=nowhere)
        managed.plugins = (*PLUGINS, *plugins)
        return managed
    settings = {
        "AMQPD_TLS_PORT": str(TLS_PORT),
        "AMQPD_TLS_CA": str(files.authority),
        "AMQPD_TLS_CERTIFICATE": str(files.certificate),
        "AMQPD_TLS_KEY": str(files.key),
        "AMQPD_TLS_VERIFY_PEER": "optional",
    }
    if plugins:
        settings |= {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(MANAGEMENT_PORT)}
    return BrokerProcess(scratch / "data", port=PORT, environment=settings)


def report(options: argparse.Namespace, runs: dict[str, Outcomes]) -> int:
    print(f"\n{options.suite}: results and logs are in {options.results}\n{table(runs)}")
    for test, why in SUITES[options.suite].left_out.items():
        print(f"left out on both: {test}: {why}")
    for name, value in SUITES[options.suite].settings.items():
        print(f"amqpd ran with {name}={value}")
    for broker in runs:
        print(f"connections that logged in to {broker}: {connections(options.results / broker)}")
    log = (options.results / "amqpd" / LOGS[0]).read_text() if "amqpd" in runs else ""
    for line in [line for line in log.splitlines() if LOGGED_ERROR.search(line)][:ERRORS_SHOWN_MAX]:
        print(f"amqpd logged: {line}")
    if len(runs) < len(BROKERS):
        return exit_code(runs)
    for name in only_on(runs["amqpd"], runs["RabbitMQ"]):
        print(f"passes on amqpd only: {name}")
    missed = only_on(runs["RabbitMQ"], runs["amqpd"])
    said = reasons(options.results / "amqpd")
    for name in missed:
        print(f"PASSES ON RABBITMQ ONLY: {name} ({runs['amqpd'].get(name, MISSING)})\n    {said.get(name, '')!r}")
    return exit_code(runs)


def connections(folder: Path) -> str:
    """How many came from each address, by the broker's log."""
    texts = [file.read_text() for file in map(folder.joinpath, LOGS) if file.exists()]
    counted = Counter(
        next(filter(None, match.groups())).strip("[]") for match in LOGGED_IN.finditer("\n".join(texts))
    )
    return ", ".join(f"{number} from {address}" for address, number in counted.most_common()) or "none"


if __name__ == "__main__":
    sys.exit(main())
