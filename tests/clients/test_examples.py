"""The programs of examples/, run as a reader would run them, against the session's broker."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pika
import pytest

from .broker_process import REPOSITORY

DEADLINE_S = 120.0


class Program:
    """An example that runs; its output is read line by line as it comes."""

    def __init__(self, url: str, file: str, *arguments: str) -> None:
        command = [sys.executable, str(REPOSITORY / "examples" / file), *arguments, "--url", url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_line(self, text: str) -> None:
        """Returns when the program has printed a line with this text."""
        with self._news:
            self._news.wait_for(lambda: self._ended or any(text in line for line in self.lines), DEADLINE_S)
            assert any(text in line for line in self.lines), f"no {text!r} in {self.lines}"

    def result(self) -> list[str]:
        """All lines, when the program has ended well by itself."""
        assert self.process.wait(DEADLINE_S) == 0, self.lines
        self._reader.join(DEADLINE_S)
        return self.lines

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


Run = Callable[..., Program]


@pytest.fixture
def run(broker_url: str) -> Iterator[Run]:
    programs: list[Program] = []

    def start(file: str, *arguments: str) -> Program:
        programs.append(Program(broker_url, file, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.close()
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        for queue in ("hello", "tasks", "factors"):
            channel.queue_delete(queue)
        for exchange in ("news", "alerts", "weather"):
            channel.exchange_delete(exchange)


def test_hello_world(run: Run) -> None:
    assert run("hello_send.py").result() == ["sent: Hello, world!"]
    assert run("hello_receive.py", "--count", "1").result()[-1] == "received: Hello, world!"


def test_work_is_shared_and_a_dead_workers_task_is_done_by_another(run: Run) -> None:
    dies = run("work_worker.py", "--name", "dies", "--seconds-per-dot", "3600")
    dies.wait_line("dies is ready")
    run("work_submit.py", "long.", "short").result()
    dies.wait_line("dies began: long.")
    lives = run("work_worker.py", "--name", "lives", "--seconds-per-dot", "0", "--count", "2")
    lives.wait_line("lives finished: short")  # prefetch 1: it was not stuck behind the long one
    dies.process.kill()
    lines = lives.result()
    assert "lives began: long. (again: somebody else began it)" in lines
    assert lines[-1] == "lives finished: long."


def test_news_reaches_every_subscriber(run: Run) -> None:
    subscribers = [run("news_subscribe.py", "--count", "2") for _ in range(2)]
    for subscriber in subscribers:
        subscriber.wait_line("subscribed with amq.gen")
    run("news_publish.py", "one").result()
    run("news_publish.py", "two").result()
    for subscriber in subscribers:
        assert subscriber.result()[1:] == ["news: one", "news: two"]


def test_alerts_are_chosen_by_severity(run: Run) -> None:
    errors = run("alerts_watch.py", "error", "--count", "1")
    most = run("alerts_watch.py", "warning", "error", "--count", "2")
    errors.wait_line("watching error")
    most.wait_line("watching warning, error")
    for severity in ("info", "warning", "error"):
        run("alerts_emit.py", severity, f"an {severity}").result()
    assert errors.result()[1:] == ["error: an error"]
    assert most.result()[1:] == ["warning: an warning", "error: an error"]


def test_topics_are_chosen_by_pattern(run: Run) -> None:
    snow = run("topics_watch.py", "no.*.snow", "no.oslo.#", "--count", "2")
    everything = run("topics_watch.py", "#", "--count", "4")
    snow.wait_line("watching no.*.snow and no.oslo.#")
    everything.wait_line("watching #")
    keys = ["se.umea.snow", "no.oslo.snow", "no.oslo", "no"]
    for key in keys:
        run("topics_emit.py", key, "5").result()
    assert snow.result()[1:] == ["no.oslo.snow: 5", "no.oslo: 5"]
    assert everything.result()[1:] == [f"{key}: 5" for key in keys]


def test_rpc_answers_in_the_order_of_the_questions(run: Run) -> None:
    for server in [run("rpc_server.py") for _ in range(2)]:
        server.wait_line("serving 'factors'")
    lines = run("rpc_client.py", "30", "97", "1001", "1", "many").result()
    assert lines[:3] == ["30 = 2 x 3 x 5", "97 = 97", "1001 = 7 x 11 x 13"]
    assert lines[3] == "1 = error: from 2 to 1000000000000, please"
    assert lines[4] == "many = error: not a whole number"
