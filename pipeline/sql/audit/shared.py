"""What the audit's queries have in common; floor 1."""

OPEN = "NOT IN ('done', 'skipped')"

HEAD = f"""
    SELECT b.id, b.position, b.state, b.gate_id, b.hold FROM jobs b
    WHERE b.lane_id = g.lane_id AND b.position > g.passed AND b.cleared < g.ordinal AND b.state {OPEN}
    ORDER BY b.position LIMIT 1"""
"""The job that owes a strict gate ``g`` its turn next, as the gates see it."""

PRUNED = """
  (SELECT site_id, max((details ->> 'fence')::bigint) AS fence FROM events WHERE verb = 'prune' GROUP BY site_id)"""
"""By site, the greatest fence that a prune took: what is beyond it must be known to somebody."""

EXCUSED = """
  (lost.fence <= pruned.fence AND t.pass <> (SELECT count(*) FROM jobs p WHERE p.topic_id = t.id)) IS TRUE"""
"""Whether nobody has to know the fence ``lost``, which a topic ``t`` once had: passes of it were pruned."""
