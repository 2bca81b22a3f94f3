"""Service level objectives, read from a TOML file.

What comes in: a file with [[objective]] tables (`examples/slo.toml`). What goes out: `Objective`s.
Rules: 1. What is wrong is one sentence with the file, the objective and the way out, before Spark starts. 2. An
unknown key is wrong: a misspelt threshold must not be one that nobody watches.
Not here: counting (`burn.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqpd_spark.flows import NAMES
from amqpd_spark.latencies import MEASURES

OTHER_MEASURES = ("errors", "redeliveries")
_UNITS_S = {"m": 60, "h": 3600, "d": 86400}
_KEYS = frozenset(("name", "measure", *NAMES, "threshold_ms", "target", "window"))
_WINDOW = re.compile(r"([1-9][0-9]{0,5})([mhd])")


class WrongObjectives(Exception):
    """One sentence with the way out."""


@dataclass(frozen=True)
class Objective:
    """The share `target` of the messages of all matching nodes, exchanges and queues (None: all) is good, within
    `window`."""

    name: str
    measure: str
    target: float
    window_s: int
    window: str
    vhost: str | None = None
    exchange: str | None = None
    queue: str | None = None
    threshold_ms: float | None = None
    node: str | None = None


def read(path: str) -> list[Objective]:
    """Raises WrongObjectives."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongObjectives(f"{path} cannot be read ({error.strerror}): give the path of a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongObjectives(f"{path} is not TOML ({error}): examples/slo.toml shows how to write it") from error
    tables = found.get("objective")
    if set(found) != {"objective"} or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise WrongObjectives(f"{path} holds something else than objectives: write each one below [[objective]]")
    objectives = [_objective(path, place, table) for place, table in enumerate(tables, 1)]
    names = [each.name for each in objectives]
    for name in names:
        if names.count(name) > 1:
            raise WrongObjectives(f"{path}: there are two objectives '{name}': give each a name of its own")
    return objectives


def pattern(text: str) -> str:
    """A regular expression of Java's for names with `*`, which is any text; everything else is itself."""
    return r"(?s)\A" + ".*".join(re.escape(part) for part in text.split("*")) + r"\z"


def _objective(path: str, place: int, table: Mapping[str, Any]) -> Objective:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise WrongObjectives(f'{path}: objective number {place} has no name: write name = "..."')

    def wrong(sentence: str) -> WrongObjectives:
        return WrongObjectives(f"{path}: objective '{name}' {sentence}")

    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise wrong(f"has the unknown key '{unknown[0]}': known are {', '.join(sorted(_KEYS))}")
    known = (*MEASURES, *OTHER_MEASURES)
    measure = table.get("measure")
    if measure not in known:
        raise wrong(f"has no known measure: write measure as one of {', '.join(known)}")
    for key in NAMES:
        if not isinstance(table.get(key, ""), str):
            raise wrong(f'has a {key} that is no text: write it as {key} = "orders-*"')
    target = table.get("target")
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < 1:
        raise wrong("needs a target between 0 and 1: write target = 0.999 for 99.9 % of the messages")
    window = table.get("window")
    length = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    if length is None:
        raise wrong('needs a window: write window = "30d", "12h" or "30m"')
    _check_places(wrong, str(measure), table)
    return Objective(
        name=name,
        measure=str(measure),
        target=float(target),
        window_s=int(length[1]) * _UNITS_S[length[2]],
        window=length[0],
        vhost=table.get("vhost"),
        exchange=table.get("exchange"),
        queue=table.get("queue"),
        threshold_ms=_threshold(wrong, str(measure), table),
        node=table.get("node"),
    )


def _check_places(wrong: Any, measure: str, table: Mapping[str, Any]) -> None:
    if measure == "publish_to_confirm" and "queue" in table:
        raise wrong("is of publish_to_confirm, where no queue is known yet: take queue out, or name an exchange")
    if measure == "redeliveries" and "exchange" in table:
        raise wrong("is of redeliveries, which queues have: take exchange out, or name a queue")
    if measure == "errors" and "exchange" in table and "queue" in table:
        raise wrong("is of errors of both an exchange and a queue: make two objectives of it")


def _threshold(wrong: Any, measure: str, table: Mapping[str, Any]) -> float | None:
    threshold = table.get("threshold_ms")
    if measure not in MEASURES:
        if threshold is not None:
            raise wrong(f"is of {measure}, which is no duration: take threshold_ms out")
        return None
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold > 0:
        raise wrong("needs a threshold: write threshold_ms = 50 for messages that are good within 50 ms")
    return float(threshold)
