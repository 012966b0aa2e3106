"""What a run has reached: each verb by the states that it left and came to, what was refused, what was answered."""

from collections import Counter
from dataclasses import dataclass, field

from pipeline.states import TRANSITIONS, JobState as S

FORCED = {("cancel force", S.RESERVED), ("skip force", S.RESERVED)}
ALLOWED = {(verb, source) for verb, t in TRANSITIONS.items() for source in t.sources} | FORCED
"""Every verb and a state that it may leave."""

BY_NUMBER = ("approve", "requeue", "grant", "skip", "cancel")
FORBIDDEN = {(verb, state) for verb in BY_NUMBER for state in S if state not in TRANSITIONS[verb].sources}
"""An operator's verb and a state from which it is refused."""


@dataclass
class Coverage:
    """Counted over all examples of a run."""

    moves: Counter[tuple[str, S, S]] = field(default_factory=Counter)
    refused: Counter[tuple[str, S]] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)  # "verb: answer"
    codes: Counter[str] = field(default_factory=Counter)  # SQLSTATEs that were met
    examples: int = 0
    steps: int = 0

    def pairs(self) -> Counter[tuple[str, S]]:
        pairs: Counter[tuple[str, S]] = Counter()
        for (verb, source, _), count in self.moves.items():
            pairs[verb, source] += count
        return pairs

    def verbs(self) -> set[str]:
        return {verb for verb, _, _ in self.moves}

    def kinds(self) -> set[str]:
        """The answers, whoever got them."""
        return {reply.rpartition(": ")[2] for reply in self.replies}

    def missing(self) -> set[tuple[str, S]]:
        """Pairs of verb and state that nobody came to: neither allowed, nor refused."""
        return (ALLOWED - self.pairs().keys()) | (FORBIDDEN - self.refused.keys())

    def table(self) -> str:
        """A line a verb: how often from each state, and to which; in brackets: refused."""
        pairs = self.pairs()
        lines = [f"{self.examples} examples, {self.steps} steps; refused in brackets", ""]
        lines.append(f"{'verb':13}" + "".join(f"{state:>11}" for state in S))
        for verb in sorted({v for v, _ in pairs} | {v for v, _ in self.refused} | set(TRANSITIONS)):
            cells = []
            for state in S:
                done, no = pairs[verb, state], self.refused[verb, state]
                cells.append(f"{done or ''}{f'[{no}]' if no else ''}" or ("-" if (verb, state) in ALLOWED else ""))
            lines.append(f"{verb:13}" + "".join(f"{cell:>11}" for cell in cells))
        lines += ["", "edges: " + ", ".join(f"{v} {a}→{b} {n}" for (v, a, b), n in sorted(self.moves.items()))]
        lines += ["", "answers: " + ", ".join(f"{what} {n}" for what, n in sorted(self.replies.items()))]
        lines += ["", "codes: " + ", ".join(f"{what} {n}" for what, n in sorted(self.codes.items()))]
        return "\n".join(lines)
