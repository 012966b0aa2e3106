"""The invariants of reservations: who holds what, by which token, and how often; floor 1."""

from pipeline.sql.audit.shared import EXCUSED, PRUNED

# Whoever was reserved before a gate became strict may finish beside the one whose turn it is then.
_I1 = """
SELECT 'more than its width' AS fault, g.id AS gate_id, g.width, count(*) AS in_flight
FROM gates g JOIN jobs j ON j.gate_id = g.id AND j.state IN ('pending', 'reserved')
GROUP BY g.id
HAVING count(*) > g.width
   AND (bool_or(j.state = 'pending')
        OR CASE WHEN g.width = 1 THEN max(j.reserved_at) >= g.strict_since ELSE max(j.slot) <= g.width END)
UNION ALL
SELECT 'at a gate that is wide open', g.id, g.width, count(*)
FROM gates g JOIN jobs j ON j.gate_id = g.id
WHERE g.width IS NULL GROUP BY g.id
"""

_I2 = """
SELECT id AS job_id, state, fence, reserved_by, reserved_at, lease_expires_at
FROM jobs
WHERE num_nonnulls(token, fence, reserved_by, reserved_at, lease_expires_at)
      <> CASE WHEN state = 'reserved' THEN 5 ELSE 0 END
"""

_I3 = f"""
SELECT 'live and ended' AS fault, j.fence, j.id AS job_id
FROM jobs j JOIN attempts a ON a.fence = j.fence
UNION ALL
SELECT 'live twice', fence, min(id) FROM jobs WHERE fence IS NOT NULL GROUP BY fence HAVING count(*) > 1
UNION ALL
SELECT 'ended twice', fence, min(job_id) FROM attempts GROUP BY fence HAVING count(*) > 1
UNION ALL
SELECT 'token used twice', max(fence), job_id
FROM (SELECT job_id, token, fence FROM attempts
      UNION ALL SELECT id, token, fence FROM jobs WHERE token IS NOT NULL) r
GROUP BY job_id, token HAVING count(*) > 1
UNION ALL
SELECT 'neither live nor ended', lost.fence, NULL
FROM (SELECT made.topic_id, made.fence
      FROM (SELECT topic_id, fence FROM revisions WHERE fence IS NOT NULL
            UNION SELECT topic_id, fence FROM findings) made
      WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.fence = made.fence)
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.fence = made.fence)
      OFFSET 0) lost
JOIN topics t ON t.id = lost.topic_id LEFT JOIN {PRUNED} pruned ON pruned.site_id = t.site_id
WHERE NOT {EXCUSED}
"""

_I4 = """
SELECT j.id AS job_id, j.fence, a.fence AS ended_fence
FROM jobs j JOIN attempts a ON a.job_id = j.id AND a.token = j.token
WHERE j.state = 'reserved'
"""

_I5 = """
SELECT j.id AS job_id, j.stage, j.round, coalesce(a.done, 0) AS done_here, a.newest
FROM jobs j
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.outcome = 'done' AND a.stage = j.stage AND a.round = j.round) AS done,
           max(a.fence) AS newest,
           max(a.fence) FILTER (WHERE a.outcome = 'done' AND a.stage = j.stage AND a.round = j.round) AS last_done
    FROM attempts a WHERE a.job_id = j.id) a ON true
WHERE j.state = 'done' AND (a.done <> 1 OR a.last_done <> a.newest)
"""

_I6 = """
SELECT j.id AS job_id, j.stage, j.round, j.attempts, j.max_attempts, c.counted
FROM jobs j
CROSS JOIN LATERAL (
    SELECT count(*) + CASE WHEN j.state = 'reserved' THEN 1 ELSE 0 END AS counted
    FROM attempts a WHERE a.job_id = j.id AND a.stage = j.stage AND a.round = j.round AND a.charged) c
WHERE j.attempts <> c.counted OR j.attempts > j.max_attempts
"""

_I16 = """
SELECT 'over before it began' AS fault, id AS job_id, reserved_at, lease_expires_at
FROM jobs WHERE state = 'reserved' AND lease_expires_at < reserved_at
UNION ALL
SELECT 'more than a day ahead', id, reserved_at, lease_expires_at
FROM jobs
WHERE state = 'reserved' AND lease_expires_at > greatest(reserved_at, statement_timestamp()) + interval '1 day'
"""

RESERVATIONS: dict[str, tuple[str, str]] = {
    "I1": ("a gate has at most its width of jobs pending or reserved, a strict one at most one, an open one none", _I1),
    "I2": ("token, fence, worker and lease are set together, and exactly when a job is reserved", _I2),
    "I3": ("every fence is live on one job or in attempts, never both, never neither; none repeats", _I3),
    "I4": ("no attempt that has ended carries the live token of its job", _I4),
    "I5": ("a done job has exactly one accepted attempt at its last stage and round, and it is the newest", _I5),
    "I6": ("the attempts charged to a job are those on record, and within what is permitted", _I6),
    "I16": ("a lease ends after it began, and not more than a day ahead", _I16),
}
