"""The few requests of Docker's interface with which a suite starts its broker, answered for one that runs.

What comes in: HTTP on loopback, at the address that the suite is given as DOCKER_HOST.
What goes out: a container's number, and the ports that the suite asked for (or the broker's), each as itself.
Rules: 1. Nothing is started, stopped or removed. 2. Anything else is 404, so that a suite that wants more fails.
Not here: who asks for it (`catalogue.py`, `docker=True`).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTAINER = "the-broker-that-runs"
PORTS = ("5672/tcp", "15672/tcp")
PATHS = {
    "POST": re.compile(r"/(images/create|build|containers/create|containers/[^/]+/(start|stop|kill))(\?.*)?"),
    "GET": re.compile(r"/(containers|images)/[^/]+/json(\?.*)?"),
    "DELETE": re.compile(r"/containers/[^/]+"),
}


class Docker(ThreadingHTTPServer):
    """Remembers the ports of the last container that was asked for."""

    daemon_threads = True
    ports: tuple[str, ...] = PORTS


class Answer(BaseHTTPRequestHandler):
    server: Docker

    def answer(self) -> None:
        body = self.body()
        if not PATHS[self.command].fullmatch(self.path):
            self.send_error(404)
            return
        if self.path.startswith("/containers/create"):
            self.server.ports = tuple(json.loads(body).get("ExposedPorts") or PORTS)
        ports = {name: [{"HostIp": "127.0.0.1", "HostPort": name.partition("/")[0]}] for name in self.server.ports}
        text = json.dumps({"Id": CONTAINER, "NetworkSettings": {"Ports": ports}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self) -> bytes:
        """What is to be built comes in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while (size := int(self.rfile.readline().partition(b";")[0], 16)) > 0:
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Who runs a suite has no use for a line for each request."""


@contextlib.contextmanager
def docker_stand_in(port: int) -> Iterator[None]:
    with Docker(("127.0.0.1", port), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield
        server.shutdown()
        thread.join()
