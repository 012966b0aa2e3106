"""The invariants of order: whose turn it is at strict gates, and what waits for it; floor 1."""

from pipeline.sql.audit.shared import HEAD, OPEN

# Released: by an attempt that began while the gate was strict and the topic in its place.
_I7 = f"""
SELECT g.id AS gate_id, j.id AS job_id, j.position, j.state, h.id AS owing_job_id, h.position AS owing_position
FROM gates g
CROSS JOIN LATERAL ({HEAD}) h
JOIN jobs j ON j.lane_id = g.lane_id AND j.position > h.position
WHERE g.width = 1
  AND ((j.gate_id = g.id AND (j.state = 'pending' OR (j.state = 'reserved' AND j.reserved_at >= g.strict_since)))
       OR EXISTS (SELECT FROM attempts a JOIN topics t ON t.id = j.topic_id
                  WHERE a.job_id = j.id AND a.stage = g.stage AND a.outcome = 'done' AND j.pass = 1
                    AND a.reserved_at >= g.strict_since AND a.reserved_at >= t.placed_at
                    AND EXISTS (SELECT FROM jobs o JOIN topics ot ON ot.id = o.topic_id
                                WHERE o.id = h.id AND o.pass = 1 AND ot.placed_at <= a.reserved_at)))
"""

# The running maximum finds the suspects in one walk of each lane; the pairs are judged for those alone.
_I8 = """
WITH freed AS (
    SELECT g.id AS gate_id, g.stage, g.strict_since, j.id AS job_id, j.position, t.placed_at,
           coalesce(least(j.finished_at,
                          (SELECT min(a.ended_at) FROM attempts a JOIN stages s
                             ON s.site_id = j.site_id AND s.name = a.stage AND s.ordinal >= g.ordinal
                           WHERE a.job_id = j.id AND a.outcome = 'done')), 'infinity') AS freed_at
    FROM gates g JOIN jobs j ON j.lane_id = g.lane_id AND j.pass = 1 JOIN topics t ON t.id = j.topic_id
    WHERE g.width = 1),
walked AS (
    SELECT f.*, max(f.freed_at) OVER (PARTITION BY f.gate_id ORDER BY f.position
                                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS all_freed_at
    FROM freed f),
begun AS (
    SELECT a.fence, a.job_id, a.stage, a.reserved_at FROM attempts a
    UNION ALL SELECT j.fence, j.id, j.stage, j.reserved_at FROM jobs j WHERE j.state = 'reserved')
SELECT w.gate_id, w.job_id, w.position, b.fence, b.reserved_at
FROM walked w JOIN begun b ON b.job_id = w.job_id AND b.stage = w.stage
WHERE b.reserved_at < w.all_freed_at AND b.reserved_at >= w.strict_since AND b.reserved_at >= w.placed_at
  AND EXISTS (SELECT FROM freed e
              WHERE e.gate_id = w.gate_id AND e.position < w.position
                AND e.placed_at <= b.reserved_at AND e.freed_at > b.reserved_at)
"""

# A pass over a topic that was skipped before owes nothing: only first passes are looked for behind ``passed``.
_I9 = f"""
SELECT 'could move' AS fault, g.id AS gate_id, g.passed, min(j.position) AS position
FROM gates g
LEFT JOIN LATERAL ({HEAD}) h ON true
JOIN jobs j ON j.lane_id = g.lane_id AND j.position > g.passed AND (h.position IS NULL OR j.position < h.position)
WHERE g.width = 1 GROUP BY g.id
UNION ALL
SELECT 'went too far', g.id, g.passed, min(j.position)
FROM gates g JOIN jobs j ON j.lane_id = g.lane_id AND j.position <= g.passed
WHERE g.width = 1 AND j.pass = 1 AND j.cleared < g.ordinal AND j.state {OPEN} GROUP BY g.id
UNION ALL
SELECT 'beyond the lane', g.id, g.passed, l.next_position - 1
FROM gates g JOIN lanes l ON l.id = g.lane_id
WHERE g.width = 1 AND g.passed >= l.next_position
"""

# Lists and doors find a lane's head by its topics and the site; gates find it by the places that jobs carry.
_I10 = f"""
SELECT g.id AS gate_id, h.id AS head, h.state, shown.id AS shown, shown.state AS shown_state
FROM gates g JOIN lanes l ON l.id = g.lane_id
LEFT JOIN LATERAL ({HEAD}) h ON true
LEFT JOIN LATERAL (
    SELECT b.id, b.state FROM topics t JOIN jobs b ON b.topic_id = t.id AND b.site_id = l.site_id
    WHERE t.lane_id = g.lane_id AND t.position > g.passed AND b.cleared < g.ordinal AND b.state {OPEN}
    ORDER BY t.position LIMIT 1) shown ON true
WHERE g.width = 1 AND h.id IS DISTINCT FROM shown.id
  AND (h.state IN ('failed', 'repair', 'cancelled') OR shown.state IN ('failed', 'repair', 'cancelled'))
"""

# A plan in a caller's own transaction promotes nothing at a limited first stage: those wait for upkeep, once. So does
# what a worker brings to a stage that was retired while it was on its way.
_I15 = f"""
SELECT 'no attempt left' AS fault, id AS job_id, stage FROM jobs WHERE state = 'pending' AND attempts >= max_attempts
UNION ALL
SELECT 'no due time', id, stage FROM jobs WHERE state = 'pending' AND isfinite(run_at) IS NOT TRUE
UNION ALL
SELECT 'no such stage', j.id, j.stage FROM jobs j
WHERE j.state = 'pending' AND j.topic_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM stages s WHERE s.site_id = j.site_id AND s.name = j.stage)
UNION ALL
SELECT 'waits for nothing', j.id, j.stage FROM jobs j JOIN lanes l ON l.id = j.lane_id AND l.state = 'active'
WHERE j.state = 'waiting' AND j.gate_id IS NULL AND j.hold IS NULL
UNION ALL
SELECT 'waits for no turn', j.id, j.stage FROM jobs j JOIN gates g ON g.id = j.gate_id
WHERE j.state = 'waiting' AND j.hold IS NULL
  AND (g.lane_id <> j.lane_id OR g.stage <> j.stage
       OR (g.width = 1 AND (j.position <= g.passed OR j.cleared >= g.ordinal)))
UNION ALL
SELECT 'could be promoted', w.id, w.stage
FROM gates g
JOIN lanes l ON l.id = g.lane_id AND l.state = 'active'
JOIN jobs w ON w.gate_id = g.id AND w.state = 'waiting' AND w.hold IS NULL
LEFT JOIN LATERAL ({HEAD}) h ON g.width = 1
WHERE (g.width > 1 OR w.id = h.id)
  AND g.width > (SELECT count(*) FROM jobs u WHERE u.gate_id = g.id AND u.slot IS NOT NULL)
  AND (EXISTS (SELECT FROM attempts a WHERE a.job_id = w.id) OR EXISTS (SELECT FROM events e WHERE e.job_id = w.id))
"""

ORDER: dict[str, tuple[str, str]] = {
    "I7": ("at a strict gate nothing is promoted, reserved or released before every earlier position", _I7),
    "I8": ("at a strict stage no first pass ever began before every earlier position was released or skipped", _I8),
    "I9": ("what a strict gate has passed is the highest position with nothing unreleased below", _I9),
    "I10": ("a lane is shown as halted exactly if its head is failed, repair or cancelled", _I10),
    "I15": ("nothing waits that can never run, and nothing that could be promoted", _I15),
}
