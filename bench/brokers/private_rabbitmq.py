"""A RabbitMQ of our own: Debian's rabbitmq-server as a plain process, apart from any that the machine runs.

What comes in: nothing. What goes out: a `PrivateBroker`. Rules: 1. own node name, ports, cookie, directories,
and an epmd of its own on loopback, so that a system's node is never touched; 2. default configuration, no
plugins; 3. the package is installed only by root, on a system with apt-get, and only when asked for.
Not here: RabbitMQ at an address (`--url`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil

from bench.brokers.base import PrivateBroker
from bench.brokers.processes import completed, end_session, free_port, said_by, start_session
from bench.errors import BenchError

_SCRIPTS = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/usr/local/sbin/rabbitmq-server",
    "/opt/rabbitmq/sbin/rabbitmq-server",
)
INSTALL_SECONDS_MAX = 600.0
# Keeps the package from starting the system's service when it is installed (Debian's policy-rc.d convention).
_POLICY = Path("/usr/sbin/policy-rc.d")


def find_rabbitmq() -> str | None:
    """The server's own start script. Not Debian's wrapper in /usr/sbin: that one changes the user."""
    return next((path for path in _SCRIPTS if os.access(path, os.X_OK)), None)


def install_rabbitmq() -> str:
    """Install Debian's package and return the start script. Raises BenchError with the reason if that may not
    be."""
    if os.geteuid() != 0:
        raise BenchError(
            "rabbitmq-server is not installed, and only root may install it (apt-get install rabbitmq-server)"
        )
    apt_get = shutil.which("apt-get")
    if apt_get is None:
        raise BenchError("rabbitmq-server is not installed, and there is no apt-get here")
    guard = not _POLICY.exists()
    if guard:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    install = [apt_get, "install", "-y", "--no-install-recommends", "rabbitmq-server"]
    try:
        # Whether the lists could be renewed is seen by what is installed from them.
        completed([apt_get, "update"], environment, INSTALL_SECONDS_MAX)
        failure = "apt-get cannot install rabbitmq-server"
        said_by(install, environment, failure=failure, seconds_max=INSTALL_SECONDS_MAX)
    finally:
        if guard:
            _POLICY.unlink()
    script = find_rabbitmq()
    if script is None:
        raise BenchError("rabbitmq-server was installed, but its start script is not where it should be")
    return script


class PrivateRabbitmq(PrivateBroker):
    name = "rabbitmq"

    def __init__(self, script: str, work_dir: str | None = None, *, tls: bool = False) -> None:
        super().__init__(work_dir, tls=tls)
        self._script = script
        self._distribution_port = free_port()
        self._epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    def another(self) -> PrivateRabbitmq:
        return PrivateRabbitmq(self._script, self._work_dir, tls=self.certificate is not None)

    def leader(self, process: psutil.Process) -> psutil.Process:
        """The Erlang machine: the shell script in front of it would die of the signal and leave it alone."""
        found = [each for each in (process, *process.children(recursive=True)) if each.name().startswith("beam")]
        if not found:
            raise BenchError("rabbitmq-server has no Erlang machine among its processes")
        return found[0]

    def prepare(self) -> None:
        epmd = shutil.which("epmd")
        if epmd is None:
            raise BenchError("Erlang's epmd is not on the path")
        (self.directory / "rabbitmq.conf").write_text(self._configuration())
        (self.directory / "enabled_plugins").write_text("[].\n")
        # In the foreground: one that the node starts would be a daemon that outlives it.
        self._epmd = start_session([epmd, "-address", "127.0.0.1", "-port", str(self._epmd_port)])

    def _configuration(self) -> str:
        files = self.certificate
        if files is None:
            return "# all defaults\n"
        settings = {
            "listeners.ssl.default": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": files.ca,
            "ssl_options.certfile": files.certificate,
            "ssl_options.keyfile": files.key,
            "ssl_options.verify": "verify_none",
        }
        return "".join(f"{name} = {value}\n" for name, value in settings.items())

    def command(self) -> list[str]:
        return [self._script]

    def environment(self) -> dict[str, str]:
        directory = self.directory
        return {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "no-rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
        }

    def clean(self) -> None:
        if self._epmd is not None:
            end_session(self._epmd)
            self._epmd = None
