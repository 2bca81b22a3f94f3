"""A worker process: plays one role of a scenario, apart from the other workers and from the runner.

What comes in: on standard input the job (`role`, its arguments, `nice` if it is to yield the processor to others),
then the runner's messages. What goes out: on standard output its own messages (`link.py`). Rules: 1. whatever goes
wrong is reported as `error` with its text, and the exit code is 1; 2. the garbage collector is off: a role allocates
no cycles while it measures.
Not here: the other end (`crew.py`).
"""

from __future__ import annotations

import gc
import os
import sys
import traceback

from bench.errors import BenchError
from bench.link import Link
from bench.roles import ROLES

JOB_SECONDS_MAX = 30.0


def main() -> int:
    link = Link(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        job = link.hear("job", JOB_SECONDS_MAX)
        job.pop("kind")
        role = ROLES[job.pop("role")]
        os.nice(job.pop("nice", 0))
        gc.disable()
        link.say("done", **role(link, **job))
    except (BenchError, OSError, EOFError) as error:
        link.say("error", text=f"{type(error).__name__}: {error}")
        return 1
    except Exception:  # noqa: BLE001, the runner reports it as it is and fails
        link.say("error", text=traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
