"""What holds for all tests: on a shared machine, how long an example takes says nothing about the code, and few are
drawn; and brokers are forked, where nothing of how an interpreter starts is tested."""

from __future__ import annotations

import structlog
from hypothesis import HealthCheck, settings

from tests.clients.broker_process import BrokerProcess
from tests.harness.examples import EXAMPLES

settings.register_profile(
    "shared machine", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")

# What a test logs, where it sets up nothing else: Rich, which structlog would take, needs seconds for a traceback.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

BrokerProcess.forks = True
