"""A standalone Spark cluster on this machine, from the classes that PySpark brings, and jobs that run on it.

What comes in: a folder for the workers. What goes out: `Cluster`, whose workers can be killed; `job`, a job as its
own process, with the event log of what ran where.
Rules: 1. All on 127.0.0.1, with ports of the system's choice. 2. A worker and its executors are a process group, so
that they die together, as a machine does. 3. Nothing waits by the clock where a line of output says it.
Not here: what is verified (`test_*.py`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
WORKERS, CORES, MEMORY = 2, 1, "1g"
DEADLINE_S = 1500
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_HERE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK), "SPARK_NO_DAEMONIZE": "1"}


def environment(**more: str) -> dict[str, str]:
    """For a process of Spark, or a job."""
    paths = os.pathsep.join(str(ROOT / name) for name in (".", "spark"))
    return {**os.environ, **_HERE, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, **more}


class Process:
    """A process of Spark; its output is read by a thread, and a line in it waited for."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self, pattern: str) -> re.Match[str]:
        """The first line with it."""
        found: list[re.Match[str]] = []

        def there() -> bool:
            found.extend(match for line in list(self.lines) if (match := re.search(pattern, line)))
            return bool(found) or self.process.poll() is not None

        wait_until(there, f"{self.name} does not say {pattern}")
        assert found, f"{self.name} ended: {''.join(self.lines[-20:])}"
        return found[0]

    def kill(self) -> None:
        """And all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)


class Cluster:
    """`url` is what jobs take as their `--master`."""

    def __init__(self, folder: Path) -> None:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._folder, self._here = folder, here
        self._master = Process("the master", _MASTER, *here)
        self.workers: list[Process] = []
        try:
            self.url = self._master.said(r"Starting Spark master at (spark://\S+)")[1]
            for _ in range(WORKERS):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def add_worker(self) -> None:
        at = len(self.workers)
        folder = self._folder / f"worker-{at}"
        has = ("--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(folder))
        self.workers.append(Process(f"worker {at}", _WORKER, *self._here, *has, self.url))
        self.workers[-1].said("Successfully registered with master")

    def close(self) -> None:
        for process in (*self.workers, self._master):
            process.kill()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Ran:
    """A job that ended: its exit code, what it said, the events of Spark, how long it took."""

    code: int
    output: str
    seconds: float
    events: list[dict[str, Any]] = field(repr=False, default_factory=list)

    @property
    def executors(self) -> dict[str, int]:
        """Executor -> tasks that it ended well."""
        tasks: dict[str, int] = {}
        for event in self.events:
            if event["Event"] == "SparkListenerTaskEnd" and not event["Task Info"]["Failed"]:
                name = event["Task Info"]["Executor ID"]
                tasks[name] = tasks.get(name, 0) + 1
        return tasks

    @property
    def lost(self) -> set[str]:
        """Executors that were removed before the job's end."""
        return {event["Executor ID"] for event in self.events if event["Event"] == "SparkListenerExecutorRemoved"}

    @property
    def heaviest(self) -> int:
        """The stage that executors worked on longest."""
        time_of: dict[int, int] = {}
        for event in self.events:
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                stage = event["Stage ID"]
                time_of[stage] = time_of.get(stage, 0) + event["Task Metrics"]["Executor Run Time"]
        return max(time_of, key=lambda stage: time_of[stage])


def job(
    folder: Path, *arguments: str, at: Callable[[list[dict[str, Any]]], bool] | None = None, then: Any = None
) -> Ran:
    """`python -m amqpd_spark` with these arguments. `at`: of the events so far, when to do `then`, once."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    folder.mkdir(parents=True)
    told = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    command = [sys.executable, "-m", "amqpd_spark", *arguments]
    return ran(command, environment(PYSPARK_SUBMIT_ARGS=f"{told} pyspark-shell"), folder, at, then)


def ran(
    command: list[str],
    given: dict[str, str],
    folder: Path,
    at: Callable[[list[dict[str, Any]]], bool] | None = None,
    then: Any = None,
) -> Ran:
    """What a command came to that writes its event log into `folder`."""
    begin = time.monotonic()
    output = folder / "output"
    with output.open("w") as told:
        process = subprocess.Popen(command, env=given, cwd=folder, stdout=told, stderr=subprocess.STDOUT)
        try:
            if at is not None:
                wait_until(lambda: at(_events(folder)) or process.poll() is not None, "the stage did not begin")
                assert process.poll() is None, f"the job ended before: {output.read_text()}"
                then()
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
    return Ran(code, output.read_text(), time.monotonic() - begin, _events(folder))


def _events(folder: Path) -> list[dict[str, Any]]:
    """Of the one application that writes there; the last line may not be whole yet."""
    events = []
    for file in folder.glob("app-*"):
        for line in file.read_text().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                break
    return events


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
