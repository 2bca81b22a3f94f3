"""How many examples a property test draws that names no number of its own.

What comes in: AMQPD_TEST_EXAMPLES. What goes out: EXAMPLES, for `tests/conftest.py` and tests that want a multiple.
Rules: 1. Few by default, others each time; `make test-heavy` draws many. Not here: tests whose examples cost so
little, or so much, that they name their own number.
"""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("AMQPD_TEST_EXAMPLES", "20"))
