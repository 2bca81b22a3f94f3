"""Figures as people read them.

What comes in: numbers, times, None. What goes out: text; a dash for None.
Rules: times are UTC; thousands have separators.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

NOTHING = "–"  # noqa: RUF001
Number = int | float | Decimal | None


def number(value: Number) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def ratio(value: Number) -> str:
    return NOTHING if value is None else f"{value:,.2f}"


def short(value: Number) -> str:
    """On an axis."""
    return NOTHING if value is None else f"{value:,g}"


def percent(value: Number) -> str:
    """99.95 %: as many digits as a share near one needs to differ from it."""
    if value is None:
        return NOTHING
    hundredths = float(value) * 100
    for digits in (1, 2, 3):
        text = f"{hundredths:.{digits}f}"
        if hundredths in (0, 100) or not text.startswith(("100.", "0.0")):
            return f"{text} %"
    return f"{hundredths:.4f} %"


def share(value: float) -> str:
    """55 %: in a sentence, where a part of a hundredth matters only beside nothing and beside all."""
    return "< 1 %" if 0 < value < 0.01 else "> 99 %" if 0.99 < value < 1 else f"{value * 100:.0f} %"


def milliseconds(value: Number) -> str:
    """Three digits that say something, in the unit that fits."""
    if value is None:
        return NOTHING
    ms = float(value)
    if ms < 1:
        return f"{ms * 1000:.0f} µs"
    if ms < 1000:
        return f"{ms:.3g} ms"
    return seconds(ms / 1000)


def seconds(value: Number) -> str:
    if value is None:
        return NOTHING
    length = float(value)
    if length < 60:
        return f"{length:.3g} s"
    for size, unit, below in ((60, "min", 120), (3600, "h", 48), (86400, "days", 0)):
        if not below or length / size < below:
            return f"{length / size:,.1f} {unit}"
    raise AssertionError


def octets(value: Number) -> str:
    if value is None:
        return NOTHING
    size, units = float(value), ["B", "kB", "MB", "GB", "TB", "PB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:,.0f} B" if units[0] == "B" else f"{size:,.1f} {units[0]}"


def time(value: datetime | date | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else f"{value:%Y-%m-%d}"


def period(begin: datetime, end: datetime) -> str:
    if begin == end:
        return f"from {time(begin)} UTC"
    if end - begin < timedelta(days=1) and begin.date() == end.date():
        return f"{begin:%Y-%m-%d}, {begin:%H:%M} to {end:%H:%M} UTC"
    return f"{time(begin)} to {time(end)} UTC"
