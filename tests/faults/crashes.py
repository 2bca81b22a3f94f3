"""Crashes by the hundred: `python -m tests.faults.crashes --kind all --rounds 50`.

What comes in: a kind of crash, how many rounds, a seed. What goes out: what was lost, unexpected, out of order or
duplicated without a reason; at the end what was done, and the duplicates by cause. The exit code is 1 for a
violation.
Rules: 1. A session is some rounds on one data directory: everyone at full speed, a crash, a start; then
everything is drained and judged. Its faults follow from the seed and its number, and are set off by counts of
confirms. 2. `kill` is SIGKILL, `power` a power cut (needs root), `eio` and `enospc` are system calls that fail
(needs strace), `full` is SIGKILL, starts on a disk without a free byte, and one with space again (`full.py`;
needs root). 3. After eio the node must have ended, and said why in a sentence; after enospc it has, or goes on
when there is space.
Not here: the loads (`workload.py`, `fates.py`, `churn.py`), the judgement (`checker.py`).
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from amqpd.management.control.socket import rows as control_rows

from .checker import check
from .churn import Churn, Passing, wrong_with
from .damage.forked import ForkedBroker
from .drain import drain, look, wait_for_rest
from .fates import FATES, add_fates
from .full import SmallDisk, add_alone, go_through
from .history import History
from .power import NoPowerDisk, PowerDisk
from .strace import FailingCalls
from .test_fsync_error import CLEAR
from .test_kill import CONSUMED, ROUTES, declare_fates, declare_topology, kill_while_it_starts, new_history
from .unpromised import unpromised
from .workload import Consumer, Progress, start_workers

KINDS = ("kill", "power", "eio", "enospc", "full")
ROUNDS_A_SESSION = 4
CONFIRMS_MAX = 10_000
CHURNS = 4
QUEUES_MAX = 6
"""that are waited for until they are deleted, purged or filled, before a crash"""
CALLS = ("fsync,fdatasync", "fdatasync", "pwrite64", "pwrite64,fsync,fdatasync")
FAILURES_MAX = 60
FULL_S = 5.0
GOES_ON = 500
"""confirms that say that it goes on"""
PATIENCE_S = 120.0
NOT_POSSIBLE = "is not possible here"
# Their dead letters are taken while the crashes happen; those of the others at the end.
DEAD_LETTERS_CONSUMED = ("ttl.dead", "expiring.dead", "judged.dead")


class Session:
    """Some rounds of one kind on one data directory."""

    def __init__(self, kind: str, seed: int, number: int, rounds: int, folder: Path, done: Counter[str]) -> None:
        self.kind, self.rounds, self.done = kind, rounds, done
        self.chance = random.Random(f"{seed}/{kind}/{number}")
        self.history = new_history()
        add_fates(self.history)
        self.passing: list[list[Passing]] = [[] for _ in range(CHURNS)]
        self.disk: PowerDisk | None = None
        if kind == "power":
            self.disk = PowerDisk(folder)
        elif kind == "full":
            self.disk = SmallDisk(folder, number)
            add_alone(self.history)
        data = (self.disk.path if self.disk else folder) / "data"
        self.broker = ForkedBroker(data, {"AMQPD_DISK_FREE_BYTES_MIN": "0"})
        self.start_s = 1.0
        self.violations: list[str] = []

    def run(self) -> list[str]:
        """What is wrong."""
        try:
            self.broker.start()
            declare_topology(self.broker)
            declare_fates(self.broker)
            for _ in range(self.rounds):
                self._round()
                self.done[self.kind] += 1
            return self._judged()
        finally:
            try:
                self.broker.close()
            finally:
                if self.disk:
                    self.disk.close()

    def _round(self) -> None:
        confirms = self.chance.randint(1, CONFIRMS_MAX)
        history = self.history
        workers: list[threading.Thread] = []
        with unpromised(self.broker.port):
            progress, started = start_workers(self.broker.port, history, ROUTES, CONSUMED, FATES)
            workers += started
            extra = [
                Consumer(self.broker.port, progress, history.queues[queue], history.incarnation, lambda *_: "ack")
                for queue in DEAD_LETTERS_CONSUMED
            ]
            churns = [
                Churn(self.broker.port, progress, self.violations, records, f"churn{place}.")
                for place, records in enumerate(self.passing)
            ]
            for worker in (*churns, *extra):
                worker.start()
                workers.append(worker)
            try:
                progress.wait(confirms, PATIENCE_S)
                self._wait_for_queues(self.chance.randint(0, QUEUES_MAX))
                assert self.broker.running, "it went down by itself"
                said = getattr(self, f"_{self.kind}")(progress)
            finally:
                progress.killed = True
                self.broker.kill()
                for started_one in workers:
                    started_one.join(PATIENCE_S)
                    assert not started_one.is_alive(), started_one.name
        history.events.append(f"incarnation {history.incarnation}: {said}, after {confirms} confirms")
        history.incarnation += 1
        if isinstance(self.disk, SmallDisk):
            first = history.incarnation
            said = go_through(self.broker, self.disk, history, self.chance, self.done)
            history.events.append(f"lives {first} to {history.incarnation}: {said}")
        if self.chance.random() < 0.25:
            kill_while_it_starts(self.broker, history, self.chance, self.start_s)
            self.done["kill in a start"] += 1
        began = time.monotonic()
        self.broker.start()
        self.start_s = time.monotonic() - began
        # No file was damaged, so the journal and the metadata know the same queues.
        parked = control_rows(self.broker.data_dir, "orphans list", {}, PATIENCE_S)
        assert not parked, f"parked after {history.events[-1]}: {parked}"

    def _wait_for_queues(self, count: int) -> None:
        """Until this many queues have come to their end in this incarnation: the load leaves them little time."""
        due, end = self._ended() + count, time.monotonic() + PATIENCE_S
        while self._ended() < due:
            assert time.monotonic() < end, f"{self._ended()} queues ended, {due} were due"
            time.sleep(0.005)

    def _ended(self) -> int:
        return sum(record.done or record.fate == "kept" for records in self.passing for record in records)

    # the faults; each returns what was done

    def _kill(self, progress: Progress) -> str:
        progress.killed = True
        self.broker.kill()
        return "SIGKILL"

    def _power(self, progress: Progress) -> str:
        assert self.disk is not None
        progress.killed = True
        self.disk.cut(self.broker.broker_pid, self.broker.kill)
        return "power cut"

    _full = _kill

    def _eio(self, progress: Progress) -> str:
        return self._failing(progress, "EIO")

    def _enospc(self, progress: Progress) -> str:
        return self._failing(progress, "ENOSPC")

    def _failing(self, progress: Progress, error: str) -> str:
        """The calls fail from one of the next on. A node that ended has said why."""
        calls, after = self.chance.choice(CALLS), self.chance.randint(1, 40)
        failures = self.chance.randint(1, FAILURES_MAX)
        progress.killed = True
        end = time.monotonic() + 2 * PATIENCE_S
        with FailingCalls(self.broker.broker_pid, calls, f"error={error}:when={after}+") as failing:
            began = time.monotonic()
            while self.broker.running and time.monotonic() < end:
                # A broker that waits for space tries again once a second.
                lasted = time.monotonic() - began > FULL_S
                if error == "ENOSPC" and (failing.injected >= failures or (failing.injected and lasted)):
                    break
                time.sleep(0.01)
            self.done[f"{error} of {calls}"] += 1
            self.done[f"calls that failed, {error}"] += failing.injected
            assert failing.injected, f"no {calls} failed in {PATIENCE_S:g} s: this was not tested"
        # What failed last may still be on its way to those who end the node.
        target = progress.confirmed + GOES_ON
        while self.broker.running and progress.confirmed < target:
            assert time.monotonic() < end, f"neither goes on nor ends after {error} of {calls}"
            time.sleep(0.01)
        if self.broker.running:
            assert error == "ENOSPC", f"it goes on after {error} of {calls}"
            self.done["went on after ENOSPC"] += 1
            self.broker.kill()
            return f"ENOSPC of {calls}, went on, SIGKILL"
        code = self.broker.wait()
        log = self.broker.log[-4000:]
        assert code not in (0, -9, -15), f"exit code {code}\n{log}"
        assert CLEAR.search(log) or "No space left" in log or "disk full" in log, f"no reason is given\n{log}"
        assert "Traceback" not in log, log
        return f"{error} of {calls} from call {after} on, exit code {code}"

    def _judged(self) -> list[str]:
        """Everything is taken out of the broker."""
        broker, history = self.broker, self.history
        wait_for_rest(broker.port)
        drain(broker.port, history)
        verdict = check(history)
        found = [] if verdict.valid else verdict.text().splitlines()
        passing = [record for records in self.passing for record in records]
        found += [*self.violations, *wrong_with(broker.port, passing)]
        if (code := broker.terminate()) != 0:
            found.append(f"exit code {code} of a stop in good order")
        broker.start()
        left = look(broker.port, list(history.queues))
        if any(left.values()):
            found.append(f"came back after the drain and a clean stop: {left}")
        self.done.update({f"messages {name}": count for name, count in verdict.counts.items()})
        self.done.update(f"queues {record.fate}" for record in passing if record.done or record.fate == "kept")
        self.done.update({f"duplicate: {cause}": count for cause, count in duplicates(history).items()})
        return found


def duplicates(history: History) -> Counter[str]:
    """Second deliveries, by what explains them."""
    causes: Counter[str] = Counter()
    for queue in history.queues.values():
        latest: dict[tuple[str, int], int] = {}
        for index, (publisher, sequence, redelivered, incarnation) in enumerate(queue.deliveries):
            before = latest.get((publisher, sequence))
            latest[publisher, sequence] = index
            if before is None:
                continue
            where = "dead letter" if queue.dead_letters_of else "message"
            if redelivered:
                causes[f"{where}, redelivered"] += 1
            elif history.queues[queue.name].deliveries[before].incarnation == incarnation:
                causes[f"{where}, in one incarnation, NOT flagged"] += 1
            elif before in queue.settle_sent:
                causes[f"{where}, not flagged: its ack was on the way in the crash"] += 1
            else:
                causes[f"{where}, not flagged: its delivery was not on disk in the crash"] += 1
    return causes


def sessions(kind: str, rounds: int) -> list[tuple[str, int, int]]:
    """(kind, number, rounds) of each."""
    kinds = KINDS if kind == "all" else (kind,)
    made = []
    for each in kinds:
        left, number = rounds, 0
        while left > 0:
            made.append((each, number, min(left, ROUNDS_A_SESSION)))
            left, number = left - ROUNDS_A_SESSION, number + 1
    return made


def run(kind: str, seed: int, number: int, rounds: int, done: Counter[str], folder: Path) -> list[str]:
    """One session in an empty folder; its violations."""
    session: Session | None = None
    try:
        session = Session(kind, seed, number, rounds, folder, done)
        return session.run()
    except (NoPowerDisk, pytest.skip.Exception) as reason:
        done[f"{kind} {NOT_POSSIBLE}: {reason}"] += 1
        return []
    except Exception as error:  # noqa: BLE001 - it is one session's result, the others go on
        log = session.broker.log[-3000:] if session else ""
        return [f"{type(error).__name__}: {error}", log]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.crashes", description="crash a broker, and count")
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--rounds", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", type=int, help="this session alone")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    # What is mounted and what runs is ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    done: Counter[str] = Counter()
    failed: list[str] = []
    began = time.monotonic()
    for kind, number, rounds in sessions(options.kind, options.rounds):
        if options.only is not None and number != options.only:
            continue
        with tempfile.TemporaryDirectory(prefix="amqpd-crashes-") as folder:
            found = run(kind, seed, number, rounds, done, Path(folder))
        passed = f"{time.monotonic() - began:.0f} s"
        print(f"{kind} session {number}: {'VIOLATED' if found else 'valid'}, {passed}", flush=True)
        if found:
            again = f"--kind {kind} --seed {seed} --rounds {options.rounds} --only {number}"
            failed.append(f"python -m tests.faults.crashes {again}")
            print("\n".join([*(f"    {line}" for line in found), f"    {failed[-1]}"]), flush=True)
    for name, count in sorted(done.items()):
        print(f"{count:9}  {name}")
    print(f"seed {seed}: {len(failed)} sessions violated" + "".join(f"\n    {again}" for again in failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
