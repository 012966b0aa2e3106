"""Dates as writers put them down; ground floor."""

import re
from datetime import UTC, datetime, tzinfo
from email.utils import parsedate_to_datetime

SHAPE = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:[Tt ]\s*(\d\d?):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?)?"
    r"\s*(Z|z|UTC|[+-]\d\d?(?::?\d\d)?)?"
)


def moment(text: str) -> tuple[str, datetime] | None:
    """The date as ISO 8601 writes it, with its own offset or none, and as a time; None when it is no date."""
    found = SHAPE.fullmatch(text.strip())
    try:
        if found is None:
            if not re.match(r"(?:[A-Za-z]{3}, *)?\d{1,2} [A-Za-z]{3} \d{4}", text.strip()):
                return None
            at = parsedate_to_datetime(text.strip())
            return at.isoformat(), at
        year, month, day, hour, minute, second, offset = found.groups()
        at = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
        if offset:
            at = datetime.fromisoformat(at.isoformat() + _offset(offset))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (at.date().isoformat() if hour is None and not offset else at.isoformat()), at


def instant(text: str, zone: tzinfo) -> datetime | None:
    """When that was, where dates without an offset are of ``zone``."""
    found = moment(text)
    if found is None:
        return None
    at = found[1] if found[1].tzinfo else found[1].replace(tzinfo=zone)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return None


def _offset(text: str) -> str:
    if text.upper() in ("Z", "UTC"):
        return "+00:00"
    digits = text[1:].replace(":", "")
    hours, minutes = (digits, "00") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    return f"{text[0]}{int(hours):02}:{minutes}"
