import os

from hypothesis import HealthCheck, Phase, seed, settings

from tests.core.model.machine import Machine

PH = [Phase.generate] + ([Phase.shrink] if os.environ.get("SHRINK") else [])
Machine.TestCase.runTest = (
    seed(int(os.environ.get("SEED", "1")))(Machine.TestCase.runTest) if 0 else Machine.TestCase.runTest
)
TestModel = Machine.TestCase
TestModel.settings = settings(
    max_examples=int(os.environ.get("N", "20")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=PH,
    database=None,
)
