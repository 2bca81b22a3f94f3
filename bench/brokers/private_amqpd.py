"""An amqpd of our own, from this checkout, with the interpreter that runs the bench.

What comes in: which kernel. What goes out: a `PrivateBroker`. Rules: 1. default configuration; only the port, the
data directory and, where it is measured, TLS are given; 2. the version tells the kernel that runs, as `amqpd
--version` says it in the same environment: a kernel that was asked for and does not run is an error, not a footnote.
Not here: amqpd at an address (`--url`).
"""

from __future__ import annotations

import os
import re
import sys

from bench.brokers.base import PrivateBroker
from bench.brokers.processes import said_by
from bench.crew import ROOT
from bench.errors import BenchError

KERNELS = ("python", "cython")
VERSION_SECONDS_MAX = 30.0


class PrivateAmqpd(PrivateBroker):
    name = "amqpd"

    def __init__(
        self,
        work_dir: str | None = None,
        *,
        tls: bool = False,
        kernel: str = "",
        name: str = "amqpd",
        audit: str = "",
    ) -> None:
        """`kernel` is one of KERNELS, or empty for what amqpd chooses by itself; `audit` a level of the audit log, or
        empty for the default one."""
        super().__init__(work_dir, tls=tls)
        self.name = name
        self._kernel = kernel
        self._audit = audit

    def another(self) -> PrivateAmqpd:
        tls = self.certificate is not None
        return PrivateAmqpd(self._work_dir, tls=tls, kernel=self._kernel, name=self.name, audit=self._audit)

    def prepare(self) -> None:
        """Raises BenchError if the kernel that is asked for does not run."""
        self._said = self._version_text()
        if self._kernel and kernel_of(self._said) != self._kernel:
            raise BenchError(f"the {self._kernel} kernel was asked for, but this is {self._said}")

    def _version_text(self) -> str:
        command = [sys.executable, "-m", "amqpd", "--version"]
        failure = "amqpd does not start"
        return said_by(command, self.environment(), failure=failure, seconds_max=VERSION_SECONDS_MAX)

    def version(self, said: str) -> str:
        return self._said.removeprefix("amqpd ") or said

    def command(self) -> list[str]:
        data_dir = str(self.directory / "data")
        return [sys.executable, "-m", "amqpd", "serve", "--port", str(self.port), "--data-dir", data_dir]

    def environment(self) -> dict[str, str]:
        values = {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT), str(ROOT / "admin"), os.environ.get("PYTHONPATH")])
            )
        }
        values["AMQPD_HTTP_PORT"] = "0"  # another broker may have the usual one
        if self._kernel:
            values["AMQPD_KERNEL"] = self._kernel
        if self._audit:
            values["AMQPD_AUDIT_LEVEL"] = self._audit
        if self.certificate is not None:
            values["AMQPD_TLS_PORT"] = str(self.tls_port)
            values["AMQPD_TLS_CERTIFICATE"] = str(self.certificate.certificate)
            values["AMQPD_TLS_KEY"] = str(self.certificate.key)
        return values


def kernel_of(version: str) -> str:
    """`python` in "amqpd 0.1.0 (kernel: python)"; empty where nothing is said."""
    found = re.search(r"\(kernel: ([\w-]+)", version)
    return found[1] if found else ""
