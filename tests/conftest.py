"""What holds for all tests: on a shared machine, how long an example takes says nothing about the code; and brokers
are forked, where nothing of how an interpreter starts is tested."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.clients.broker_process import BrokerProcess

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

BrokerProcess.forks = True
