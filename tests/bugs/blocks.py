"""How much statements of ours touch: blocks, not seconds, so that a busy machine changes nothing."""

from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, event, text

from pipeline.testing.database import SCHEMA


class Cost:
    """Counts the blocks that each statement touches, by running it once more beside itself and taking that back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.statements: list[int] = []

    @property
    def blocks(self) -> int:
        return sum(self.statements)

    def __enter__(self) -> Self:
        event.listen(self._engine, "before_cursor_execute", self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        event.remove(self._engine, "before_cursor_execute", self._look)

    def _look(self, cn: Any, cursor: Any, statement: str, values: Any, context: Any, many: bool) -> None:
        if statement.split(None, 1)[0].upper() not in ("SELECT", "WITH", "INSERT", "UPDATE"):
            return
        with cn.connection.driver_connection.cursor() as beside:
            beside.execute("SAVEPOINT beside")
            beside.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values)
            plan = beside.fetchone()[0][0]["Plan"]
            beside.execute("ROLLBACK TO SAVEPOINT beside")
        self.statements.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def ask(engine: Engine, statement: str, **values: Any) -> list[Any]:
    """Run one statement of plain SQL, committed; its rows, if it has any."""
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        answer = connection.execute(text(statement), {k: v for k, v in values.items() if f":{k}" in statement})
        return list(answer) if answer.returns_rows else []
