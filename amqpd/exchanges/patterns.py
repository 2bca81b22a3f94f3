"""How topic patterns and routing keys are read: words between dots.

What comes in: the text of a binding key or a routing key. What goes out: its words; for patterns in normal
form.
Rules: 1. the empty text is zero words, not one empty word; 2. `a..b` has an empty word, which is a word like
any other; 3. `*` and `#` are wildcards only as whole words of a pattern, and never in a routing key.
Not here: matching (`sublist.py`).
"""

from __future__ import annotations

STAR = "*"
HASH = "#"


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def normal_form(pattern: str) -> list[str]:
    """The words of a pattern that matches the same keys and has the stars of each run of wildcards first and
    at most one `#` behind them: a run of s stars and some `#` says "s words or more" in whichever order it is
    written.

    The walk lives on this: no `#` is followed by a wildcard, so a `#` node has literal children only."""
    words = words_of(pattern)
    normal: list[str] = []
    pending_hash = False
    for word in words:
        if word == HASH:
            pending_hash = True
            continue
        if pending_hash and word != STAR:
            normal.append(HASH)
            pending_hash = False
        normal.append(word)
    if pending_hash:
        normal.append(HASH)
    return normal


def is_literal(words: list[str]) -> bool:
    return STAR not in words and HASH not in words
