"""The README's program, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_program_works(broker_url: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    local = "amqp://guest:guest@localhost:5672/%2F"
    assert local in program
    # A queue of its own: the broker may be anyone's.
    program = program.replace(local, broker_url).replace('"hello"', '"test.readme"')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert done.stdout == "b'Hello!'\n", done.stderr
