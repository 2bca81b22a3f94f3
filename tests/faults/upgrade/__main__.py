"""An upgrade, whole: `python -m tests.faults.upgrade --before ../before`.

What comes in: a checkout of the version before (with `make build` run in it, if it is to be compiled), a number of
messages. What goes out: for a data directory that this version stopped in order, and one that it left by SIGKILL,
what each reader made of a copy: what is wrong, how long it took. The exit code is 1 if anything is.
Rules: 1. The version before reads too: what the judge has against it is a fault of this program, or an
old one of the broker. 2. A directory is written once, and copied for each reader.
Not here: what is published (`loads.py`), the judgement (`judge.py`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ...clients.broker_process import REPOSITORY, BrokerProcess
from .judge import judge
from .loads import LOADS, Book, read_book
from .reading import Seen, read
from .writing import ENVIRONMENT, write

READERS = ("compiled", "plain", "before")
ENDS = ("stopped", "killed")


def opened(checkout: Path, kernel: str, written: Path, folder: Path, book: Book) -> Seen:
    """What a reader makes of a copy of the directory."""
    shutil.copytree(written / "data", folder / "data", symlinks=True)
    if (folder / "data" / "audit" / "lives.json").exists():
        # An audit log of a version whose columns had other names is put aside first (CHANGELOG.md, "Changed").
        (folder / "data" / "audit").rename(folder / "audit")
    environment = ENVIRONMENT | ({"AMQPD_KERNEL": kernel} if kernel else {})
    broker = BrokerProcess(folder / "data", environment=environment, checkout=checkout)
    try:
        return read(broker, book)
    finally:
        broker.close()


def told(end: str, reader: str, seen: Seen) -> str:
    parts = []
    for load in LOADS:
        dead_letters = f"+{len(seen.queues[load.dead])}" if load.dead else ""
        parts.append(f"{load.queue} {len(seen.queues[load.queue])}{dead_letters}")
    total = sum(map(len, seen.queues.values()))
    took = f"ready in {seen.start_s:.1f} s, drained in {seen.drain_s:.1f} s"
    return f"{end}, read by {reader}: {total} messages, {took}: {', '.join(parts)}; {seen.delayed} delayed"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.upgrade", description="open what another version wrote"
    )
    parser.add_argument("--before", type=Path, default=REPOSITORY, help="the checkout that writes")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--span", type=float, default=240.0, help="seconds over which delays and lifetimes spread")
    parser.add_argument("--ends", nargs="+", choices=ENDS, default=ENDS)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    parser.add_argument(
        "--keep", type=Path, help="where directories stay; those that are there are not written again"
    )
    options = parser.parse_args()
    before, failed = options.before.resolve(), 0
    with tempfile.TemporaryDirectory(prefix="amqpd-upgrade-") as temporary:
        for end in options.ends:
            written = (options.keep or Path(temporary)) / end
            began = time.monotonic()
            if (written / "book.json").exists():
                book = read_book(written / "book.json")
            else:
                book = write(before, written, options.messages, int(options.span * 1000), killed=end == "killed")
            print(f"{end}: {options.messages} messages written in {time.monotonic() - began:.1f} s", flush=True)
            for reader in options.readers:
                checkout = before if reader == "before" else REPOSITORY
                with tempfile.TemporaryDirectory(prefix="read-", dir=temporary) as folder:
                    kernel = "python" if reader == "plain" else ""
                    seen = opened(checkout, kernel, written, Path(folder), book)
                wrong = judge(book, seen)
                failed += bool(wrong)
                print("\n    ".join([told(end, reader, seen), *(wrong or ["nothing is wrong"])]), flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
