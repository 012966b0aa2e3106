"""What a run says beside its figures; engine room.

What rests by a person's will, and how ``PIPELINE`` differs from the order that the database has.
"""

from pipeline.service.order import Differences


def lane_note(lane: str, state: str, slug: str) -> str:
    verb = "open" if state == "closed" else "resume"
    return f"lane {lane} is {state}; go on with: pipeline lanes {verb} {slug}/{lane}"


def paused_note(name: str, slug: str) -> str:
    return f"stage {name} is paused; go on with: pipeline stages resume {name} --site {slug}"


def stands(count: int) -> str:
    return f"{count} job{'s' if count != 1 else ''} stand{'s' if count == 1 else ''}"


def order_notes(differences: Differences, slug: str) -> list[str]:
    """What the author of ``PIPELINE`` should know of the order that the database has."""
    notes = [
        f"stage {name!r} is in the database, but not in stages:PIPELINE: its jobs are left to other releases;"
        f" if it is gone for good: pipeline stages retire {name} --site {slug}"
        for name in differences.unknown
    ]
    notes += [
        f"stage {name!r} is in stages:PIPELINE, but was retired: topics step over it;"
        f" to bring it back: pipeline stages restore {name} --site {slug}"
        for name in differences.retired
    ]
    notes += [
        f"stage {name!r} has width {width(here)} in stages:PIPELINE, but {width(there)} in the database, which is kept;"
        f" change it: pipeline stages set {name} --site {slug} --width {width(here).lower()}"
        for name, there, here in differences.widths
    ]
    return notes


def width(value: int | None) -> str:
    return "None" if value is None else str(value)
