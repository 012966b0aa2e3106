"""Numbers as tools of many countries export them; ground floor."""

import re
from decimal import Decimal, InvalidOperation

UNKNOWN = frozenset({"", "-", "–", "—", "--", "n/a", "na", "n.a.", "none", "null", "∞"})
LONGEST = 60  # no number is longer, and patterns take their time over what is
SCALES = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000, "mio": 1_000_000, "tsd": 1_000}
RANGE = re.compile(r"(.+?)\s*[–—]\s*(.+)|(.+?\S)\s+-\s+(\S.*)")
NUMBER = re.compile(r"([+-]?)\s*[^\d\s.,+-]{0,4}\s*([\d.,'’\u00a0\u202f ]*\d)\s*(%|[a-z]{1,3}|[€$£¥])?", re.IGNORECASE)


def number(text: str, *, comma: bool = False) -> str:
    """The number in plain digits; a range as ``1000..10000``, a bound as ``<10``; empty when it is unknown.

    ``comma``: the file writes decimals with one. A share is a fraction: ``35%`` is ``0.35``. What is no number stays.
    """
    said = text.strip()
    if said.lower() in UNKNOWN:
        return ""
    if len(said) > LONGEST:
        return text
    if said[0] in "<>":
        inner = number(said[1:], comma=comma)
        return said[0] + inner if _plain(inner) else text
    if found := RANGE.fullmatch(said):
        low, high = (number(part, comma=comma) for part in found.groups() if part is not None)
        return f"{low}..{high}" if _plain(low) and _plain(high) else text
    match = NUMBER.fullmatch(said)
    if match is None:
        return text
    sign, digits, unit = match.groups()
    try:
        value = Decimal(_pointed(re.sub(r"['’\u00a0\u202f ]", "", digits), comma=comma))
    except InvalidOperation:
        return text
    if unit == "%":
        value = value.scaleb(-2)
    elif unit and unit.isalpha():
        if unit.lower() not in SCALES:
            return text
        value *= SCALES[unit.lower()]
    written = format(value, "f")
    if "." in written:
        written = written.rstrip("0").rstrip(".")
    return ("-" if sign == "-" and value else "") + written


def _plain(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _pointed(digits: str, *, comma: bool) -> str:
    """The digits with a point for decimals and nothing between thousands."""
    if "," in digits and "." in digits:
        decimal = max(digits.rfind(","), digits.rfind("."))
        return re.sub("[.,]", "", digits[:decimal]) + "." + digits[decimal + 1 :]
    for mark, is_decimal in ((",", comma), (".", not comma)):
        if mark in digits:
            grouped = re.fullmatch(rf"\d{{1,3}}(\{mark}\d{{3}})+", digits) is not None
            if digits.count(mark) > 1 or (grouped and not is_decimal):
                return digits.replace(mark, "")
            return digits.replace(mark, ".")
    return digits
