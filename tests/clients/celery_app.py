"""The Celery application that `test_celery.py` runs in a worker process; addressed by environment variables.

`CELERY_TEST_URL` is the broker, `CELERY_TEST_QUEUE` the queue: every test run has its own.
"""

from __future__ import annotations

import os
import time

from celery import Celery, Task

app = Celery("amqpd-test", broker=os.environ.get("CELERY_TEST_URL"), backend="rpc://")
QUEUE = os.environ.get("CELERY_TEST_QUEUE", "celery")
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    result_expires=300,
    # Its own event exchange and control mailboxes need no broker of their own, but unique names here.
    control_exchange=f"{QUEUE}.control",
    event_exchange=f"{QUEUE}.event",
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True, max_retries=5)
def works_at_the_third_try(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@app.task
def fails(text: str) -> None:
    raise ValueError(text)


@app.task
def now() -> float:
    return time.time()


@app.task
def size_of(data: str) -> int:
    return len(data)
