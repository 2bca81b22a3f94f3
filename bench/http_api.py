"""What the management API takes: `python -m bench.http_api --queues 10000 --connections 2000`.

What comes in: how many queues and connections there are. What goes out: a table: how long pages of lists and the
overview take, what the broker has in memory; then scenarios of `python -m bench` beside a broker that three web UIs
poll, in turns with one that nobody polls.
Rules: 1. A UI is a browser that shows a page: it asks for what that page asks for (`admin/amqpd_admin/pages/`), every
two seconds. Three of them show the overview, the list of queues and one queue. 2. Times are of one request after the
other, over one connection, and medians. 3. Both brokers have the same queues and connections. 4. Progress goes to
standard error, the table to standard output.
Not here: what is in the answers (`tests/admin`), scenarios (`bench/scenarios`).
"""

from __future__ import annotations

import argparse
import base64
import http.client
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from threading import Event, Thread

import psutil

from bench.brokers.private_amqpd import PrivateAmqpd
from bench.brokers.processes import free_port
from bench.clock import now
from bench.crew import ROOT
from bench.errors import BenchError
from bench.many_queues import Table, declare, report
from bench.wire import Wire

ASKED = {
    "overview": "/api/overview",
    "a page of queues": "/api/queues?page=1&page_size=100&sort=name",
    "a page, sorted by a rate": "/api/queues?page=1&page_size=100&sort=message_stats.publish_details.rate",
    "a page of 500, searched": "/api/queues?page=1&page_size=500&name=9",
    "a page of connections": "/api/connections?page=1&page_size=100&sort=name",
    "all queues, without statistics": "/api/queues?disable_stats=true&enable_queue_totals=true",
    "metrics": "/metrics",
}
SPAN = "lengths_age=600&lengths_incr=10&msg_rates_age=600&msg_rates_incr=10"
FIELDS = (
    "name,vhost,type,state,durable,auto_delete,exclusive,policy,consumers,messages,messages_ready,"
    "messages_unacknowledged,message_stats.publish_details.rate,message_stats.deliver_get_details.rate"
)
QUEUE = "%2F/q000000"
PAGES = {
    "overview": (f"/api/overview?{SPAN}", "/api/nodes"),
    "queues": (f"/api/queues?page=1&page_size=50&sort=name&columns={FIELDS}",),
    "a queue": (
        f"/api/queues/{QUEUE}?{SPAN}",
        f"/api/queues/{QUEUE}/bindings?page=1&page_size=50&sort=source",
        f"/api/amqpd/why/queues/{QUEUE}",
    ),
}
"""what each asks for"""
UI_SECONDS = 2.0
REQUESTS = 30
"""of a kind; of those that take long as many as fit into `KIND_SECONDS`"""
KIND_SECONDS = 10.0
ANSWER_SECONDS_MAX = 120.0
SCENARIOS = ("stream", "closed-500")


class WithPages(PrivateAmqpd):
    """With its API at a port that is known."""

    def __init__(self, work_dir: str | None, name: str) -> None:
        super().__init__(work_dir, name=name)
        self.http_port = free_port()

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "AMQPD_HTTP_PORT": str(self.http_port), "AMQPD_CONNECTIONS_MAX": "100000"}


class Client:
    """One connection of guest."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        self._headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

    def get(self, path: str) -> bytes:
        """Raises BenchError for anything but an answer."""
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{path} was not answered: {error}") from error
        if answer.status != 200:
            raise BenchError(f"{path} was answered with {answer.status}: {body[:200].decode(errors='replace')}")
        return body

    def close(self) -> None:
        self._connection.close()


def times(port: int, path: str) -> tuple[list[float], int]:
    """Seconds of each request; bytes of an answer."""
    client = Client(port)
    size = len(client.get(path))
    taken: list[float] = []
    while len(taken) < REQUESTS and sum(taken) < KIND_SECONDS:
        began = now()
        client.get(path)
        taken.append(now() - began)
    client.close()
    return taken, size


class Poller:
    """A web UI that shows a page, until it is ended."""

    def __init__(self, port: int, asks: Sequence[str]) -> None:
        self._asks = asks
        self._ended = Event()
        self._client = Client(port)
        self.asked = 0
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for path in self._asks:
                self._client.get(path)
                self.asked += 1
            self._ended.wait(UI_SECONDS)

    def end(self) -> None:
        """Raises BenchError if it has ended by itself."""
        if not self._thread.is_alive():
            raise BenchError("a poller got no answer")
        self._ended.set()
        self._thread.join(ANSWER_SECONDS_MAX)
        self._client.close()


def single(table: Table, broker: WithPages, url: str, pid: int, queues: int, connections: int) -> list[Wire]:
    """Times of single requests. The connections that it opened."""
    before = psutil.Process(pid).memory_info().rss
    report(f"{queues:,} queues are declared")
    declare([url], [f"q{number:06}" for number in range(queues)], 4, 32)
    report(f"{connections:,} connections are opened")
    opened = [Wire(url) for _ in range(connections)]
    memory = psutil.Process(pid).memory_info().rss
    table.add("memory, MB (before)", f"{memory / 1e6:,.0f} ({before / 1e6:,.0f})")
    for what, path in ASKED.items():
        taken, size = times(broker.http_port, path)
        table.add(
            f"{what}: median, worst, ms (kB)",
            f"{1000 * median(taken):,.1f}, {1000 * max(taken):,.1f} ({size / 1000:,.0f})",
        )
    after = psutil.Process(pid).memory_info().rss
    table.add("memory after that, MB", f"{after / 1e6:,.0f}")
    return opened


def beside(table: Table, urls: dict[str, str], port: int, rounds: int, seconds: float) -> None:
    """Scenarios of both brokers in turns, while three UIs poll one of them."""
    pollers = [Poller(port, asks) for asks in PAGES.values()]
    command = [sys.executable, "-m", "bench", *SCENARIOS, "--rounds", str(rounds), "--seconds", str(seconds)]
    named = [each for name, url in urls.items() for each in ("--url", f"{name}={url}")]
    done = subprocess.run([*command, *named, "--baseline", "alone"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    asked = sum(each.asked for each in pollers)
    for each in pollers:
        each.end()
    if done.returncode != 0:
        raise BenchError(f"python -m bench ended with {done.returncode}")
    table.add("requests of the UIs meanwhile", f"{asked:,}")
    print(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.http_api", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--connections", type=int, default=2_000, help="how many (2,000)")
    parser.add_argument("--rounds", type=int, default=5, help="of the scenarios; 0: none (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round (3)")
    given = parser.parse_args(arguments)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-http-") as work_dir, ExitStack() as stack:
        brokers = {name: WithPages(str(Path(work_dir)), name) for name in ("alone", "polled")}
        started = {name: stack.enter_context(broker) for name, broker in brokers.items()}
        polled = started["polled"]
        assert polled.pid is not None
        opened = single(table, brokers["polled"], polled.url, polled.pid, given.queues, given.connections)
        if given.rounds:
            declare([started["alone"].url], [f"q{number:06}" for number in range(given.queues)], 4, 32)
            opened += [Wire(started["alone"].url) for _ in range(given.connections)]
            urls = {name: each.url for name, each in started.items()}
            beside(table, urls, brokers["polled"].http_port, given.rounds, given.seconds)
        for each in opened:
            each.close()
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
