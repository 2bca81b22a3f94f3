"""Celery, unchanged: a worker process, results over rpc://, retries, countdown and eta, groups, chains."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import kombu.pools
import pika
import pytest

from .broker_process import REPOSITORY

TIMEOUT_S = 30
WORKER_POOLS = ["solo", "threads"]

# Celery and kombu warn about their own future, not about ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


@pytest.fixture(scope="module", params=WORKER_POOLS)
def tasks(
    request: pytest.FixtureRequest, broker_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    """The application's module, with a worker running for it."""
    queue = f"test.celery.{request.param}.{uuid.uuid4().hex[:10]}"
    os.environ["CELERY_TEST_URL"], os.environ["CELERY_TEST_QUEUE"] = broker_url, queue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = f"{__package__}.celery_app"
        module = importlib.reload(importlib.import_module(name))
        worker = start_worker(name, request.param, tmp_path_factory.mktemp("celery"))
        try:
            yield module
        finally:
            close(module)
            worker.terminate()
            worker.wait(TIMEOUT_S)
            delete_leftovers(broker_url, queue)


def close(module: ModuleType) -> None:
    """`app.close` alone leaves the sockets of its pools to the garbage collector."""
    module.app.backend.result_consumer.stop()
    module.app.amqp.producer_pool.force_close_all()
    module.app.pool.force_close_all()
    kombu.pools.reset()
    module.app.close()


def start_worker(name: str, pool: str, directory: Path) -> subprocess.Popen[str]:
    """Returns when the worker says that it is ready."""
    command = [sys.executable, "-m", "celery", "-A", name, "worker", "--pool", pool, "--concurrency", "2"]
    worker = subprocess.Popen(
        [*command, "--loglevel", "INFO", "--without-gossip", "--without-mingle"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ready, lines = threading.Event(), []

    def read() -> None:
        assert worker.stdout is not None
        with worker.stdout:
            for line in worker.stdout:
                lines.append(line)
                if " ready." in line:
                    ready.set()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    if not ready.wait(TIMEOUT_S) or worker.poll() is not None:
        worker.kill()
        pytest.fail(f"the worker did not get ready:\n{''.join(lines)}")
    return worker


def delete_leftovers(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_delete(queue)
        for exchange in (queue, f"{queue}.event", f"{queue}.control.pidbox", f"reply.{queue}.control.pidbox"):
            channel.exchange_delete(exchange)


def test_a_task_and_its_result(tasks: ModuleType) -> None:
    assert tasks.add.delay(2, 3).get(timeout=TIMEOUT_S) == 5


def test_many_tasks_in_a_group(tasks: ModuleType) -> None:
    from celery import group

    results = group(tasks.add.s(number, number) for number in range(50)).apply_async()
    assert results.get(timeout=TIMEOUT_S) == [2 * number for number in range(50)]


def test_a_chain_passes_results_on(tasks: ModuleType) -> None:
    chain = tasks.add.s(1, 1) | tasks.add.s(10) | tasks.add.s(100)
    assert chain.apply_async().get(timeout=TIMEOUT_S) == 112


def test_retry_with_countdown(tasks: ModuleType) -> None:
    assert tasks.works_at_the_third_try.delay().get(timeout=TIMEOUT_S) == 2


def test_an_exception_comes_back_as_itself(tasks: ModuleType) -> None:
    with pytest.raises(ValueError, match="of this text"):
        tasks.fails.delay("of this text").get(timeout=TIMEOUT_S)


def test_countdown_and_eta_are_kept(tasks: ModuleType) -> None:
    began = time.time()
    by_countdown = tasks.now.apply_async(countdown=0.5)
    by_eta = tasks.now.apply_async(eta=datetime.now(UTC) + timedelta(seconds=0.5))
    at_once = tasks.now.apply_async()
    assert at_once.get(timeout=TIMEOUT_S) < by_countdown.get(timeout=TIMEOUT_S)
    assert by_countdown.get(timeout=TIMEOUT_S) >= began + 0.5
    assert by_eta.get(timeout=TIMEOUT_S) >= began + 0.5


def test_a_big_argument(tasks: ModuleType) -> None:
    assert tasks.size_of.delay("x" * 1_000_000).get(timeout=TIMEOUT_S) == 1_000_000


def test_the_worker_answers_ping_and_inspect(tasks: ModuleType) -> None:
    replies = tasks.app.control.ping(timeout=TIMEOUT_S, limit=1)
    assert len(replies) == 1
    assert next(iter(replies[0].values())) == {"ok": "pong"}
    registered = tasks.app.control.inspect(timeout=TIMEOUT_S, limit=1).registered()
    assert any(name.endswith("celery_app.add") for name in next(iter(registered.values())))
