"""Names as slugs, and what readers take for the same; ground floor.

Transliteration is anyascii's: one table, no languages, so that the same name is the same slug on every machine.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from anyascii import anyascii

from pipeline.project.site import MAX_SLUG_BYTES
from pipeline.project.topics import DEVICES

# Beside what Windows keeps to itself: what a site itself serves under that name.
RESERVED = DEVICES | {"index", "feed", "sitemap"}
QUOTES = str.maketrans(dict.fromkeys("‘’‚‛ʼ`´", "'") | dict.fromkeys("“”„«»", '"') | dict.fromkeys("–—‐‑", "-"))
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
WORD = re.compile(r"\w+")
YEAR = re.compile(r"(?:19|20)\d\d")


def slug(text: str) -> str:
    """Lower-case ASCII words joined by ``-``, cut after a word at 200 bytes; empty when nothing can be said so."""
    plain = text if text.isascii() else anyascii(unicodedata.normalize("NFC", INVISIBLE.sub("", text)))
    plain = plain.lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain.replace("'", "")).strip("-")
    if len(words) > MAX_SLUG_BYTES:
        words = words[: MAX_SLUG_BYTES + 1].rpartition("-")[0] or words[:MAX_SLUG_BYTES]
    return words


def unescaped(name: str) -> str:
    """A slug as its source wrote it, without percent signs: ``%CE%B1`` is ``α``."""
    return unicodedata.normalize("NFC", unquote(name))


def likeness(text: str) -> str:
    """What two titles or keywords share if they are the same: case, blanks, quotes and dashes folded."""
    if text.isascii():
        return " ".join(text.translate(QUOTES).casefold().split())
    folded = unicodedata.normalize("NFKC", INVISIBLE.sub("", text)).translate(QUOTES).casefold()
    return " ".join(folded.split())


def words(text: str) -> frozenset[str]:
    """What a title is about: its words without order, years and plural marks."""
    plain = likeness(text)
    found = frozenset(_stem(word) for word in WORD.findall(plain if plain.isascii() else anyascii(plain).lower()))
    return frozenset(word for word in found if not YEAR.fullmatch(word)) or found


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class Neighbours:
    """Titles by their words, to find those that say nearly the same: four words in five are shared.

    A title of n words shares one of its rarest ``n - ceil(0.8 n) + 1`` with each that is so near, so it is kept under
    these only; how rare each word is among ``all_titles`` is counted first. Words are numbers: there are many titles.
    """

    def __init__(self, all_titles: Iterable[str]) -> None:
        counts = Counter(word for title in all_titles for word in words(title))
        self._ranks = {word: rank for rank, (word, _) in enumerate(reversed(counts.most_common()))}
        self._titles: list[tuple[int, ...]] = []
        self._by_word: dict[int, list[int]] = {}

    def near(self, title: str) -> int | None:
        """The place of the first known title that is near to this one, which is known from now on."""
        ranks = self._ranks
        here = tuple(sorted(ranks.setdefault(word, -1 - len(ranks)) for word in words(title)))
        kept = here[: len(here) - -(-len(here) * 4 // 5) + 1]
        found = next((n for n in self._candidates(kept) if _alike(here, self._titles[n])), None)
        for word in kept:
            self._by_word.setdefault(word, []).append(len(self._titles))
        self._titles.append(here)
        return found

    def _candidates(self, kept: tuple[int, ...]) -> Iterator[int]:
        seen: set[int] = set()
        for word in kept:
            for number in self._by_word.get(word, ()):
                if number not in seen:
                    seen.add(number)
                    yield number


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    shared = len({*one}.intersection(other))
    return shared * 5 >= 4 * (len(one) + len(other) - shared) > 0
