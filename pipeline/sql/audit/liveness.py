"""What must be empty once nobody has worked for a while: signs that something waits for a person; floor 1.

A row here breaks no promise. Patience is built in: two polls and a reap with room to spare.
"""

_L1 = """
SELECT id AS job_id, site_id, stage, reserved_by,
       round(extract(epoch FROM clock_timestamp() - lease_expires_at)) AS seconds
FROM jobs WHERE state = 'reserved' AND lease_expires_at < statement_timestamp() - interval '15 seconds'
"""

_L2 = """
SELECT 'due' AS fault, j.id AS job_id, j.site_id, j.stage,
       round(extract(epoch FROM clock_timestamp() - j.run_at)) AS seconds
FROM jobs j JOIN sites s ON s.id = j.site_id AND s.state = 'active'
LEFT JOIN lanes l ON l.id = j.lane_id
LEFT JOIN stages g ON g.site_id = j.site_id AND g.name = j.stage
WHERE j.state = 'pending' AND j.run_at < statement_timestamp() - interval '10 seconds'
  AND coalesce(l.state, 'active') = 'active' AND coalesce(g.state, 'active') <> 'paused'
  AND NOT EXISTS (SELECT FROM jobs r WHERE r.site_id = j.site_id AND r.state = 'reserved'
                  AND r.lease_expires_at >= statement_timestamp())
UNION ALL
SELECT 'could be promoted', w.id, w.site_id, w.stage, round(extract(epoch FROM clock_timestamp() - w.created_at))
FROM gates g
JOIN lanes l ON l.id = g.lane_id AND l.state = 'active'
JOIN jobs w ON w.gate_id = g.id AND w.state = 'waiting' AND w.hold IS NULL
WHERE w.created_at < statement_timestamp() - interval '10 seconds'
  AND g.width > (SELECT count(*) FROM jobs u WHERE u.gate_id = g.id AND u.slot IS NOT NULL)
  AND (g.width > 1 OR w.position = (
        SELECT min(b.position) FROM jobs b
        WHERE b.lane_id = g.lane_id AND b.position > g.passed AND b.cleared < g.ordinal
          AND b.state NOT IN ('done', 'skipped')))
"""

_L3 = """
SELECT j.id AS job_id, j.site_id, j.stage, j.state
FROM jobs j
WHERE j.state IN ('failed', 'repair', 'cancelled') AND j.error_class IS NULL
  AND NOT EXISTS (SELECT FROM events e WHERE e.job_id = j.id AND e.to_state = j.state)
  AND NOT EXISTS (SELECT FROM events e WHERE e.job_id = j.id AND e.verb = 'cancel' AND j.state = 'cancelled')
  AND NOT EXISTS (SELECT FROM attempts a WHERE a.job_id = j.id AND a.error IS NOT NULL
                  AND a.fence = (SELECT max(n.fence) FROM attempts n WHERE n.job_id = j.id))
"""

_L4 = """
SELECT pid, application_name, round(extract(epoch FROM clock_timestamp() - state_change)) AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pipeline%' AND state LIKE 'idle in transaction%'
  AND state_change < statement_timestamp() - interval '1 second' AND pid <> pg_backend_pid()
"""

_L5 = """
SELECT p.id AS publication_id, p.site_id, p.target, p.intent_path,
       round(extract(epoch FROM clock_timestamp() - p.intent_at)) AS seconds
FROM publications p
WHERE p.intent_at < statement_timestamp() - interval '15 minutes'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.fence = p.intent_fence AND j.token = p.intent_token
                  AND j.state = 'reserved')
"""

LIVENESS: dict[str, tuple[str, str]] = {
    "L1": ("no reservation outlives its lease: somebody takes it back", _L1),
    "L2": ("nothing is due, or could be promoted, while nobody works", _L2),
    "L3": ("whatever needs a person says why", _L3),
    "L4": ("no session of ours is idle in a transaction", _L4),
    "L5": ("no page is half published for more than a quarter of an hour", _L5),
}
"""By id: what should hold once nobody works, and the query whose rows tell what does not."""
