"""`python -m tests.cost.measure [LOAD ...]`: what a message costs now, in the form of `bounds.toml`.

What comes in: names of loads, or nothing for all. What goes out: the lines of the table, to be put in its place;
with `--where`, the functions that the opcodes of a message are spent in; with `--profiles DIR`, callgrind's profiles.
Not here: whether it is too much (`test_cost.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.cost.bounds import bounds_of, build, python
from tests.cost.counting import count, waiting, where
from tests.cost.instructions import instructions, missing
from tests.cost.loads import BY_NAME, KINDS, WAITING

FUNCTIONS_SHOWN = 25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cost.measure", description="What a message costs.")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(BY_NAME))
    parser.add_argument("--where", action="store_true", help="the functions that the opcodes are spent in")
    parser.add_argument("--profiles", metavar="DIR", type=Path, help="keep callgrind's profiles, as LOAD.callgrind")
    parser.add_argument("--quick", action="store_true", help="without instructions, which take a minute")
    options = parser.parse_args()
    unknown = set(options.loads) - set(BY_NAME)
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    for name in options.loads if options.where else ():
        print_where(name)
    if options.where:
        return
    names = options.loads or list(BY_NAME)
    why_not = "--quick" if options.quick else missing()
    if why_not:
        print(f"# without instructions: {why_not}")
    with tempfile.TemporaryDirectory() as directory:
        keep = options.profiles or Path(directory)
        keep.mkdir(parents=True, exist_ok=True)
        driven = [name for name in names if BY_NAME[name] in KINDS]
        counted = {} if why_not else instructions(driven, keep)
    print_table(names, counted)


def print_table(names: list[str], counted: dict[str, dict[str, float]]) -> None:
    print(f'interpreter = "{python()}"')
    for name in names:
        kind = BY_NAME[name]
        figures = count(name) if kind in KINDS else {}
        figures |= counted.get(name, {})
        figures |= waiting(name) if name in WAITING else {}
        before = bounds_of(name)
        print(f"\n[{build_key()}.{name}]\n# {kind.summary}")
        for what, found in figures.items():
            value = max(found, 0.0)  # where nothing is left, what a run costs once may not cancel out to zero
            was = before.get(what)
            change = f"  # was {was:g}" if was and abs(value / was - 1) > 0.01 else ""
            print(f"{what} = {float(f'{value:.4g}'):g}{change}")


def build_key() -> str:
    return build() if "+" not in build() else f'"{build()}"'


def print_where(name: str) -> None:
    spent = where(name)
    total = sum(spent.values())
    print(f"{name}: {total:,.1f} opcodes a message")
    for function, opcodes in sorted(spent.items(), key=lambda item: -item[1])[:FUNCTIONS_SHOWN]:
        print(f"{opcodes:10,.2f} {opcodes / total:6.1%}  {function}")


if __name__ == "__main__":
    main()
