"""The invariants of the queue, each one plain query that returns the rows which break it; floor 1.

Every query is true at any moment, in any session: it reads one snapshot, and every verb leaves every snapshot whole.
Names are unqualified, since the caller sets the search path for its transaction. These are written as SQL, not as Core,
so that they share no code with the statements that they judge.
"""

from pipeline.sql.audit.order import ORDER
from pipeline.sql.audit.records import RECORDS
from pipeline.sql.audit.reservations import RESERVATIONS

INVARIANTS: dict[str, tuple[str, str]] = dict(
    sorted((RESERVATIONS | ORDER | RECORDS).items(), key=lambda item: int(item[0][1:]))
)
"""By id: what must hold, and the query whose rows break it."""
