"""A difference in words, for operators.

What comes in: a difference. What goes out: lines of text, or the same as plain values.
Rules: 1. One line for each thing, with a sign: + is made, ~ becomes otherwise, - goes. 2. Of many in a section the
first are shown, unless all are asked for; the last line counts everything. 3. No name moves the cursor.
Not here: colours and output (`commands/definitions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from amqpd.definitions.comparison import particulars, thing
from amqpd.definitions.difference import Action, Difference, ImportStep
from amqpd.definitions.document import SECTIONS
from amqpd.vocabulary.escapes import escaped

# Of each section and action: a screen or two for a file that makes a thousand queues.
SHOWN_MAX = 10

_SIGNS: dict[Action, str] = {"create": "+", "change": "~", "remove": "-"}


def describe(found: Difference, everything: bool = False) -> list[str]:
    """The lines of a plan; `everything` shows each thing."""
    lines: list[str] = []
    for section, action, steps in _by_kind(found):
        shown = steps if everything else _first(steps)
        lines += [_line(step) for step in shown]
        if len(steps) > len(shown):
            more = len(steps) - len(shown)
            lines.append(f"{_SIGNS[action]} ... and {more:,} more {_words(section, more)}")
    return [*map(escaped, lines), *describe_left_out(found, everything), summary(found)]


def difference_as_json(found: Difference, everything: bool = False) -> dict[str, Any]:
    """The same for programs: `changes` are those of a kind, of which `things` are the first ones, or all."""
    return {
        "summary": summary(found),
        "changes": [
            {
                "section": section,
                "action": action,
                "count": len(steps),
                "words": f"{len(steps):,} {_words(section, len(steps))}",
                "things": [
                    {"thing": thing(step.record), "detail": _detail(step)}
                    for step in (steps if everything else _first(steps))
                ],
            }
            for section, action, steps in _by_kind(found)
        ],
        "unchanged": {section: found.unchanged[section] for section in SECTIONS if found.unchanged[section]},
        **{
            name: {"count": len(said), "says": said if everything else said[:SHOWN_MAX]}
            for name, said in (
                ("conflicts", found.conflicts),
                ("impossible", found.impossible),
                ("left_out", found.left_out),
                ("kept", found.kept),
            )
        },
    }


def describe_left_out(found: Difference, everything: bool = False) -> list[str]:
    """What the file says and is not done, and what `prune` does not take away."""
    lines = _listed("left out", found.left_out, everything) + _listed("kept", found.kept, everything)
    return list(map(escaped, lines))


def describe_conflicts(found: Difference) -> list[str]:
    """Each of them: they are what an operator has to look at."""
    return [escaped(f"! {conflict}") for conflict in found.conflicts]


def summary(found: Difference, done: bool = False) -> str:
    """One sentence, as in: would create 2 queues; 12 things are as the file says."""
    words: dict[Action, tuple[str, str]] = {
        "create": ("would create", "created"),
        "change": ("would change", "changed"),
        "remove": ("would remove", "removed"),
    }
    parts = []
    for action, both in words.items():
        counts = [(section, _count(found.steps, section, action)) for section in SECTIONS]
        named = [f"{count:,} {_words(section, count)}" for section, count in counts if count]
        if named:
            parts.append(f"{both[done]} {', '.join(named)}")
    same = found.unchanged.total()
    rest = f"{same:,} thing{' is' if same == 1 else 's are'} as the file says"
    return "; ".join([*(parts or ["nothing to change"]), rest])


def _count(steps: Iterable[ImportStep], section: str, action: Action) -> int:
    return sum(step.section == section and step.action == action for step in steps)


def _by_kind(found: Difference) -> Iterator[tuple[str, Action, list[ImportStep]]]:
    of: dict[tuple[str, Action], list[ImportStep]] = {}
    for step in found.steps:
        of.setdefault((step.section, step.action), []).append(step)
    for section in SECTIONS:
        for action in _SIGNS:
            if steps := of.get((section, action)):
                yield section, action, steps


def _first(steps: list[ImportStep]) -> list[ImportStep]:
    return steps if len(steps) <= SHOWN_MAX + 1 else steps[:SHOWN_MAX]


def _detail(step: ImportStep) -> str:
    return step.detail if step.action != "create" else particulars(step.record)


def _line(step: ImportStep) -> str:
    detail = _detail(step)
    return f"{_SIGNS[step.action]} {thing(step.record)}" + (f": {detail}" if detail else "")


def _listed(what: str, sentences: list[str], everything: bool) -> list[str]:
    shown = sentences if everything else sentences[:SHOWN_MAX]
    lines = [f"({what}) {sentence}" for sentence in shown]
    if len(sentences) > len(shown):
        lines.append(f"({what}) ... and {len(sentences) - len(shown):,} more")
    return lines


def _words(section: str, count: int) -> str:
    """What the things of a section are called, one of them or many."""
    many = section.replace("_", " ").replace("vhosts", "virtual hosts")
    return many if count != 1 else f"{many[:-3]}y" if many.endswith("ies") else many[:-1]
