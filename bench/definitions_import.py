"""How long a definition file takes: `python -m bench.definitions_import [--queues N] [--bindings N] [--rabbitmq]`.

What comes in: sizes. What goes out: seconds for plan, import, import again and export, each a whole run of the
command, on a broker that runs; with `--rabbitmq` the same file in RabbitMQ, by rabbitmqctl.
Rules: 1. The file has ten virtual hosts, a hundred users with hashes and permissions, twenty policies, and the queues
and bindings that were asked for. 2. The second import must change nothing, and two exports must be equal, or it ends
with an error: a fast import of the wrong things is none.
Not here: what the commands do (`amqpd/commands/definitions.py`).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.brokers.private_amqpd import PrivateAmqpd
from bench.brokers.private_rabbitmq import PrivateRabbitmq, find_rabbitmq
from bench.brokers.processes import said_by
from bench.clock import now
from bench.crew import ROOT
from bench.errors import BenchError

VHOSTS, USERS, POLICIES = 10, 100, 20
QUEUES, BINDINGS = 1_000, 5_000
# Of this many, with virtual hosts, users and policies.
TARGET_SECONDS = 10.0


def definition_file(queues: int, bindings: int) -> dict[str, Any]:
    vhosts = [f"v{number}" for number in range(VHOSTS)]
    users = [f"user{number}" for number in range(USERS)]
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "rabbitmq_version": "3.10.8",
        "vhosts": [{"name": vhost, "metadata": {"description": "bench", "tags": []}} for vhost in vhosts],
        "users": [
            {
                "name": user,
                "password_hash": hashed(user),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": ["monitoring"],
                "limits": {},
            }
            for user in users
        ],
        "permissions": [
            {"user": user, "vhost": vhosts[number % VHOSTS], **everything} for number, user in enumerate(users)
        ],
        "policies": [
            {
                "vhost": vhosts[number % VHOSTS],
                "name": f"policy{number}",
                "pattern": f"^q{number}",
                "apply-to": "queues",
                "definition": {"max-length": 1000 + number},
                "priority": number,
            }
            for number in range(POLICIES)
        ],
        "exchanges": [
            {"vhost": vhost, "name": "x", "type": "topic", "durable": True, "auto_delete": False, "arguments": {}}
            for vhost in vhosts
        ],
        "queues": [
            {
                "vhost": vhosts[number % VHOSTS],
                "name": f"q{number}",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-message-ttl": 60000},
            }
            for number in range(queues)
        ],
        "bindings": [
            {
                "vhost": vhosts[number % queues % VHOSTS],
                "source": "x",
                "destination": f"q{number % queues}",
                "destination_type": "queue",
                "routing_key": f"orders.{number}.#",
                "arguments": {},
            }
            for number in range(bindings)
        ],
    }


def hashed(password: str) -> str:
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def timed(what: str, line: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Seconds of a command, from start to end, and what it wrote. Raises BenchError when it fails."""
    began = now()
    said = said_by(line, environment, failure=f"{what} failed")
    seconds = now() - began
    print(f"{what:32} {seconds:8.2f} s")
    return seconds, said


def measure_amqpd(file: Path, work: Path) -> float:
    broker = PrivateAmqpd()
    with broker:
        data_dir = str(broker.directory / "data")
        command = [sys.executable, "-m", "amqpd", "--data-dir", data_dir, "definitions"]
        environment = {"PYTHONPATH": str(ROOT)}
        timed("amqpd plan", [*command, "plan", str(file)], environment)
        seconds, _ = timed("amqpd import", [*command, "import", str(file)], environment)
        _, again = timed("amqpd import again", [*command, "import", str(file)], environment)
        if not again.startswith("nothing to change"):
            raise BenchError(f"importing again changed something: {again}")
        exports = [work / "first.json", work / "second.json"]
        timed("amqpd export", [*command, "export", str(exports[0])], environment)
        timed("amqpd import of the export", [*command, "import", str(exports[0]), "--prune"], environment)
        timed("amqpd export", [*command, "export", str(exports[1])], environment)
        if exports[0].read_bytes() != exports[1].read_bytes():
            raise BenchError("exporting, importing and exporting again gave another file")
    return seconds


def measure_rabbitmq(file: Path, work: Path) -> None:
    script = find_rabbitmq()
    if script is None:
        raise BenchError("there is no rabbitmq-server here")
    broker = PrivateRabbitmq(script)
    with broker:
        environment = broker.environment()
        command = [str(Path(script).with_name("rabbitmqctl")), "-n", environment["RABBITMQ_NODENAME"]]
        timed("rabbitmq import", [*command, "import_definitions", str(file)], environment)
        timed("rabbitmq import again", [*command, "import_definitions", str(file)], environment)
        timed("rabbitmq export", [*command, "export_definitions", str(work / "rabbitmq.json")], environment)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.definitions_import", description="Definition files, timed."
    )
    parser.add_argument("--queues", type=int, default=QUEUES, help=f"default {QUEUES}")
    parser.add_argument("--bindings", type=int, default=BINDINGS, help=f"default {BINDINGS}")
    parser.add_argument("--rabbitmq", action="store_true", help="the same in Debian's rabbitmq-server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-definitions-") as directory:
        work = Path(directory)
        file = work / "definitions.json"
        file.write_text(json.dumps(definition_file(options.queues, options.bindings)))
        print(
            f"{VHOSTS} virtual hosts, {USERS} users, {POLICIES} policies, {options.queues:,} queues, "
            f"{options.bindings:,} bindings: {file.stat().st_size:,} bytes"
        )
        seconds = measure_amqpd(file, work)
        if options.rabbitmq:
            measure_rabbitmq(file, work)
    if (options.queues, options.bindings) != (QUEUES, BINDINGS):
        return 0
    within = seconds < TARGET_SECONDS
    print(f"import: {seconds:.2f} s, {'within' if within else 'OVER'} the {TARGET_SECONDS:g} s that it may take")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
