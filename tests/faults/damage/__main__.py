"""Damages data directories and looks what a broker makes of them: `python -m tests.faults.damage --rounds 400`.

What comes in: how many rounds, a seed. What goes out: each round that is not allowed, with the command that
repeats it; at the end what was drawn, and a table of outcomes by file and kind of damage. The exit code is 1 if
one was not allowed.
Rules: 1. A round's damage follows from the seed, its number and the images; with `--images DIR` the images are
made there once and kept, so that a round can be repeated to the byte. 2. Each fourth round stops the broker in
good order afterwards, starts it again and looks whether what was taken stays away. 3. With `--accept` and `--repair`,
where a start is refused, the operator's ways out are tried too: they may lose what they say, and nothing else may go
wrong. 4. `--fields` without a number of rounds plays each named place once; the last line says how many there are.
Not here: damages (`damages.py`), a round (`rounds.py`), the judgement (`judge.py`)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from amqpd.backup.progress import Progress
from amqpd.checking.repair import RepairError, repair

from .books import Book
from .damages import Damage, draw, every_field, make
from .images import make_images
from .judge import NOT_ALLOWED, OUTCOMES, REFUSED, Ruling, judge, judge_accepted, judge_repaired
from .rounds import keep, look, play

AGAIN_EVERY = 4
ROUNDS = 400
"""if no number is given"""
REASONS_MAX = 4


@dataclasses.dataclass
class Ways:
    """out of a refusal, to be tried"""

    accept: bool = False
    repair: bool = False


@dataclasses.dataclass
class Result:
    number: int
    image: str
    file: str
    kind: str
    text: str
    outcome: str
    reasons: list[str]
    said: list[str]
    seconds: float
    accepted: str
    """what `--accept-loss` made of a refusal, if that was tried"""
    repaired: str
    """what `amqpd check --repair` made of it, if that was tried"""


def chance_of(seed: int, number: int) -> random.Random:
    return random.Random(f"{seed}/{number}")


def plan(seed: int, images: Path, *, fields: bool) -> tuple[Callable[[int], Damage], int]:
    """(round number -> damage, how many named places there are). `fields`: one bit or byte of each place in turn, in
    an order of the seed."""
    if not fields:
        return lambda number: draw(chance_of(seed, number), images), 0
    listed = every_field(images)
    random.Random(seed).shuffle(listed)

    def chosen(number: int) -> Damage:
        chance = chance_of(seed, number)
        image, file, field = listed[number % len(listed)]
        return make(chance, images, image, file, chance.choice(["bit", "byte"]), field)

    return chosen, len(listed)


def numbers_of(options: argparse.Namespace, places: int) -> range:
    """Of the rounds that are to be played."""
    if options.only is not None:
        return range(options.only, options.only + 1)
    count = options.rounds if options.rounds is not None else places - options.first if places else ROUNDS
    return range(options.first, options.first + count)


def one(images: Path, scratch: Path, damage: Damage, number: int, kept: Path | None, ways: Ways) -> Result:
    folder = scratch / f"round{number}"
    began = time.monotonic()
    way_out = mended = ""
    try:
        book, seen = play(images, damage, folder, again=number % AGAIN_EVERY == 0)
        ruling: Ruling = judge(book, seen, damage.file)
        if seen.exit_code is not None and ways.repair:
            mended, reasons, log = repaired(book, folder)
            if reasons:
                ruling, seen.log = Ruling(NOT_ALLOWED, reasons), [*seen.log, *log]
        if ruling.outcome == REFUSED and ways.accept:
            accepted = look(book, folder / "data", arguments=["--accept-loss"])
            way_out = "serves" if accepted.exit_code is None else "refuses"
            if reasons := judge_accepted(book, accepted):
                ruling, seen.log = Ruling(NOT_ALLOWED, reasons), [*seen.log, *accepted.log]
        result = Result(
            *(number, damage.image, damage.file, damage.kind, damage.text),
            *(ruling.outcome, ruling.reasons, seen.sentences, time.monotonic() - began, way_out, mended),
        )
        if ruling.outcome == NOT_ALLOWED and kept is not None:
            story = {"damage": damage.text, "reasons": ruling.reasons, "log": seen.log}
            keep(folder, kept / f"failed-{number}", story)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def repaired(book: Book, folder: Path) -> tuple[str, list[str], list[str]]:
    """(what it did, what is wrong with that, the log of the start after it)"""
    data = shutil.copytree(folder / "data", folder / "repaired", ignore=shutil.ignore_patterns("*.sock"))
    try:
        done = repair(data, Progress())
    except RepairError:
        return "not possible", [], []
    except Exception as error:  # noqa: BLE001 - whatever it is, the round shows it
        return "failed", [f"a repair failed: {error!r}"], []
    if done.kept is None or done.in_the_way:
        return "nothing to repair" if done.kept is None else "more is in the way", [], []
    seen = look(book, data)
    said = {each.severity for each in done.consequences}
    story = [f"{each.severity}: {each.text}" for each in done.consequences]
    return "serves", judge_repaired(book, seen, said), [*story, *seen.log]


def told(result: Result, again: str) -> str:
    reasons = [f"    {reason}" for reason in result.reasons[:REASONS_MAX]]
    if len(result.reasons) > REASONS_MAX:
        reasons.append(f"    and {len(result.reasons) - REASONS_MAX} more")
    return "\n".join([f"round {result.number}: {result.text}", *reasons, f"    {again} --only {result.number}"])


def table(results: list[Result]) -> str:
    """By file and kind; a row of sums."""
    counts = Counter((result.file, result.kind, result.outcome) for result in results)
    names = sorted({(result.file, result.kind) for result in results})
    width = max([4, *(len(file) for file, _ in names)])
    lines = [f"{'file':{width}} {'kind':20}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES)]
    for file, kind in names:
        cells = (counts[file, kind, outcome] for outcome in OUTCOMES)
        lines.append(f"{file:{width}} {kind:20}" + "".join(f"{cell or '':>12}" for cell in cells))
    sums = Counter(result.outcome for result in results)
    lines.append(f"{'all':{width}} {'':20}" + "".join(f"{sums[outcome]:>12}" for outcome in OUTCOMES))
    return "\n".join(lines)


def drawn(results: list[Result]) -> str:
    parts = []
    for name in ("image", "file", "kind"):
        counts = Counter(getattr(result, name) for result in results)
        parts.append(f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts.most_common()))
    if tried := Counter(result.accepted for result in results if result.accepted):
        parts.append("--accept-loss, where a start was refused: " + ", ".join(f"{k} {n}" for k, n in tried.items()))
    if tried := Counter(result.repaired for result in results if result.repaired):
        parts.append(
            "amqpd check --repair, where a start was refused: " + ", ".join(f"{k} {n}" for k, n in tried.items())
        )
    return "\n".join(parts)


@contextlib.contextmanager
def folder_for(images: Path | None) -> Iterator[Path]:
    if images is not None:
        yield images
        return
    with tempfile.TemporaryDirectory(prefix="amqpd-images-") as temporary:
        yield Path(temporary)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.damage", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help=f"how many ({ROUNDS}; with --fields as many as there are places)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round (0)")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", type=int, help="this round alone")
    parser.add_argument(
        "--images", type=Path, help="keep the images here, and use those that are there; failing rounds too"
    )
    parser.add_argument(
        "--accept", action="store_true", help="start again with --accept-loss where a start is refused"
    )
    parser.add_argument("--repair", action="store_true", help="try 'amqpd check --repair' where a start is refused")
    parser.add_argument("--fields", action="store_true", help="a bit or byte of each field of each record, in turn")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    ways = Ways(options.accept, options.repair)
    again = f"python -m tests.faults.damage --seed {seed}" + "".join(
        f" {flag}"
        for flag, given in (
            (f"--images {options.images}", options.images),
            ("--accept", options.accept),
            ("--repair", options.repair),
            ("--fields", options.fields),
        )
        if given
    )
    # Copies and brokers are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results: list[Result] = []
    began = time.monotonic()
    with folder_for(options.images) as images, tempfile.TemporaryDirectory(prefix="amqpd-damage-") as scratch:
        make_images(images)
        print(f"seed {seed}; images made in {time.monotonic() - began:.1f} s", flush=True)
        places = 0
        try:
            damage_of, places = plan(seed, images, fields=options.fields)
            for number in numbers_of(options, places):
                damage = damage_of(number)
                result = one(images, Path(scratch), damage, number, options.images, ways)
                results.append(result)
                if result.outcome == NOT_ALLOWED:
                    print(told(result, again), flush=True)
                elif options.only is not None:
                    print(f"{result.text}: {result.outcome} {result.said}")
        except KeyboardInterrupt:
            print("stopped")
    print(f"\n{drawn(results)}\n\n{table(results)}")
    of = f" of {places} named places" if places else ""
    print(f"\nseed {seed}, {len(results)} rounds{of}, {time.monotonic() - began:.0f} s")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1))
    return int(any(result.outcome == NOT_ALLOWED for result in results))


if __name__ == "__main__":
    sys.exit(main())
