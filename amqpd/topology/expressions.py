"""Regular expressions that people write: in permissions and in policies.

What comes in: the text. What goes out: the compiled expression, or the reason why it is none.
Rules: 1. Bounded in length. 2. What Python would read otherwise than PCRE is refused and not guessed at.
Not here: what the empty text means (nothing in permissions, everything in policies): see there.

What is not bounded: a pattern such as `(a+)+$` takes exponential time in the length of the name, up to 255
characters, and Python's engine cannot be stopped in it. Only a user who may write the data directory sets patterns.
"""

from __future__ import annotations

import re
import warnings

# Longer than any list of names that a person keeps up, and still compiled within milliseconds.
PATTERN_LENGTH_MAX = 2_000


class PatternError(ValueError):
    """The text is no regular expression that we take; the message says why."""


def compile_expression(pattern: str) -> re.Pattern[str]:
    """Raises PatternError with the reason."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError(f"it is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        with warnings.catch_warnings():
            # Python warns where its syntax may come to mean something else, as PCRE's `[[:alpha:]]` does already.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise PatternError(str(error)) from error
