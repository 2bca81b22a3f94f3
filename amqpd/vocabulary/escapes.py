"""Text that clients chose, made safe for a terminal and for a line of the log.

What comes in: any text. What goes out: the same text, with what moves a cursor, ends a line, changes the direction of
what is read or is no character, written as `\\u001b`, as JSON and logfmt write it.
Rules: 1. Text without such characters is returned as it is. 2. JSON stays exactly the same value: the escapes are
JSON's own. 3. Half a surrogate pair stands for an octet that is not UTF-8 (PEP 383); it cannot be encoded.
Not here: what has to be in quotes in a line (`process/logs.py`), columns (`commands/tables.py`).

Source: https://www.unicode.org/reports/tr36/ for the characters that change the direction; CWE-117 and CWE-150 for
what they are used for.
"""

from __future__ import annotations

import json
import re
from typing import Any

# C0 and DEL, C1 (0x9b begins a control sequence in many terminals); Arabic letter mark, left-to-right and
# right-to-left mark; line and paragraph separator, embeddings and overrides; isolates; surrogates.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """For one line."""
    return UNSAFE.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """For several: their ends stay."""
    return "\n".join(map(escaped, text.split("\n")))


def readable_json(value: Any, indent: int | None = None) -> str:
    """JSON that people may look at: characters as they are, except unsafe ones. It can always be encoded."""
    return escaped_lines(json.dumps(value, indent=indent, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
