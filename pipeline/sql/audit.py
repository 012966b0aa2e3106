"""The invariants of the queue, each one plain query that returns the rows which break it; floor 1.

Every query is true at any moment, in any session: it reads one snapshot, and every verb leaves every snapshot whole.
Names are unqualified, since the caller sets the search path for its transaction. These are written as SQL, not as Core,
so that they share no code with the statements that they judge.
"""

_OPEN = "NOT IN ('done', 'skipped')"

# The job that owes a strict gate its turn next, as the gates see it.
_HEAD = f"""
    SELECT b.id, b.position, b.state, b.gate_id, b.hold FROM jobs b
    WHERE b.lane_id = g.lane_id AND b.position > g.passed AND b.cleared < g.ordinal AND b.state {_OPEN}
    ORDER BY b.position LIMIT 1"""

# A topic that still has all of its passes: nothing of it was pruned, so that every fence must still be known.
_UNPRUNED = "t.pass = (SELECT count(*) FROM jobs p WHERE p.topic_id = t.id)"

_I1 = """
SELECT g.id AS gate_id, g.width, count(*) AS in_flight
FROM gates g JOIN jobs j ON j.gate_id = g.id AND j.state IN ('pending', 'reserved')
GROUP BY g.id
HAVING count(*) > g.width
   AND (g.width = 1 OR bool_or(j.state = 'pending') OR max(j.slot) <= g.width)
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
SELECT 'neither live nor ended', made.fence, NULL
FROM (SELECT topic_id, fence FROM revisions WHERE fence IS NOT NULL
      UNION SELECT topic_id, fence FROM findings) made
JOIN topics t ON t.id = made.topic_id
WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.fence = made.fence)
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.fence = made.fence)
  AND {_UNPRUNED}
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

# Released: by an attempt that began while the gate was strict and the topic in its place.
_I7 = f"""
SELECT g.id AS gate_id, j.id AS job_id, j.position, j.state, h.id AS owing_job_id, h.position AS owing_position
FROM gates g
CROSS JOIN LATERAL ({_HEAD}) h
JOIN jobs j ON j.lane_id = g.lane_id AND j.position > h.position
WHERE g.width = 1
  AND ((j.gate_id = g.id AND j.state IN ('pending', 'reserved'))
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
LEFT JOIN LATERAL ({_HEAD}) h ON true
JOIN jobs j ON j.lane_id = g.lane_id AND j.position > g.passed AND (h.position IS NULL OR j.position < h.position)
WHERE g.width = 1 GROUP BY g.id
UNION ALL
SELECT 'went too far', g.id, g.passed, min(j.position)
FROM gates g JOIN jobs j ON j.lane_id = g.lane_id AND j.position <= g.passed
WHERE g.width = 1 AND j.pass = 1 AND j.cleared < g.ordinal AND j.state {_OPEN} GROUP BY g.id
UNION ALL
SELECT 'beyond the lane', g.id, g.passed, l.next_position - 1
FROM gates g JOIN lanes l ON l.id = g.lane_id
WHERE g.width = 1 AND g.passed >= l.next_position
"""

# Lists and doors find a lane's head by its topics and the site; gates find it by the places that jobs carry.
_I10 = f"""
SELECT g.id AS gate_id, h.id AS head, h.state, shown.id AS shown, shown.state AS shown_state
FROM gates g JOIN lanes l ON l.id = g.lane_id
LEFT JOIN LATERAL ({_HEAD}) h ON true
LEFT JOIN LATERAL (
    SELECT b.id, b.state FROM topics t JOIN jobs b ON b.topic_id = t.id AND b.site_id = l.site_id
    WHERE t.lane_id = g.lane_id AND t.position > g.passed AND b.cleared < g.ordinal AND b.state {_OPEN}
    ORDER BY t.position LIMIT 1) shown ON true
WHERE g.width = 1 AND h.id IS DISTINCT FROM shown.id
  AND (h.state IN ('failed', 'repair', 'cancelled') OR shown.state IN ('failed', 'repair', 'cancelled'))
"""

# The row of the attempt or event that ended a job is stamped a moment after the job itself.
_I11 = """
SELECT 'finish time' AS fault, id AS job_id, state, finished_at
FROM jobs WHERE (finished_at IS NOT NULL) <> (state IN ('done', 'skipped'))
UNION ALL
SELECT 'attempt after its end', j.id, j.state, j.finished_at
FROM jobs j JOIN attempts a ON a.job_id = j.id AND a.reserved_at > j.finished_at
UNION ALL
SELECT 'event after its end', j.id, j.state, j.finished_at
FROM jobs j JOIN events e ON e.job_id = j.id
WHERE e.from_state IN ('done', 'skipped') OR (e.at > j.finished_at AND e.to_state <> j.state)
UNION ALL
SELECT 'left a final state', j.id, j.state, j.finished_at
FROM jobs j
WHERE j.state NOT IN ('done', 'skipped')
  AND (EXISTS (SELECT FROM attempts a
               WHERE a.job_id = j.id AND a.stage = j.stage AND a.round = j.round AND a.outcome = 'done')
       OR EXISTS (SELECT FROM events e WHERE e.job_id = j.id AND e.to_state IN ('done', 'skipped')))
"""

_I12 = f"""
SELECT 'revision without an accepted attempt' AS fault, r.id AS revision_id, r.fence
FROM revisions r JOIN topics t ON t.id = r.topic_id
WHERE r.origin = 'generated'
  AND NOT EXISTS (SELECT FROM attempts a JOIN jobs j ON j.id = a.job_id
                  WHERE a.fence = r.fence AND a.outcome = 'done' AND j.topic_id = r.topic_id)
  AND {_UNPRUNED}
UNION ALL
SELECT 'attempt with several revisions', min(r.id), r.fence
FROM revisions r WHERE r.fence IS NOT NULL GROUP BY r.fence HAVING count(*) > 1
UNION ALL
SELECT 'accepted draft that is lost', t.id, t.revisions
FROM topics t WHERE t.revisions <> (SELECT count(*) FROM revisions r WHERE r.topic_id = t.id)
"""

_I13 = f"""
SELECT 'unfinished passes' AS fault, topic_id AS id, count(*) AS found
FROM jobs WHERE topic_id IS NOT NULL AND state {_OPEN} GROUP BY topic_id HAVING count(*) > 1
UNION ALL
SELECT 'unfinished assemblies', site_id, count(*)
FROM jobs WHERE topic_id IS NULL AND state {_OPEN} GROUP BY site_id HAVING count(*) > 1
UNION ALL
SELECT 'topics of one slug', min(id), count(*) FROM topics GROUP BY site_id, slug HAVING count(*) > 1
UNION ALL
SELECT 'topics of one path', min(id), count(*) FROM topics GROUP BY site_id, path HAVING count(*) > 1
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
LEFT JOIN LATERAL ({_HEAD}) h ON g.width = 1
WHERE (g.width > 1 OR w.id = h.id)
  AND g.width > (SELECT count(*) FROM jobs u WHERE u.gate_id = g.id AND u.slot IS NOT NULL)
  AND NOT (NOT EXISTS (SELECT FROM attempts a WHERE a.job_id = w.id)
           AND g.ordinal = (SELECT min(s.ordinal) FROM stages s WHERE s.site_id = l.site_id AND s.state <> 'retired'))
"""

INVARIANTS: dict[str, tuple[str, str]] = {
    "I1": ("a gate has at most its width of jobs pending or reserved, a strict one at most one", _I1),
    "I2": ("token, fence, worker and lease are set together, and exactly when a job is reserved", _I2),
    "I3": ("every fence is live on one job or in attempts, never both, never neither; none repeats", _I3),
    "I4": ("no attempt that has ended carries the live token of its job", _I4),
    "I5": ("a done job has exactly one accepted attempt at its last stage and round, and it is the newest", _I5),
    "I6": ("the attempts charged to a job are those on record, and within what is permitted", _I6),
    "I7": ("at a strict gate nothing is promoted, reserved or released before every earlier position", _I7),
    "I8": ("at a strict stage no first pass ever began before every earlier position was released or skipped", _I8),
    "I9": ("what a strict gate has passed is the highest position with nothing unreleased below", _I9),
    "I10": ("a lane is shown as halted exactly if its head is failed, repair or cancelled", _I10),
    "I11": ("done and skipped jobs have a finish time, no other has, and nothing leaves them", _I11),
    "I12": ("each generated revision comes from one accepted attempt, and none that was accepted is lost", _I12),
    "I13": (
        "a topic has at most one unfinished pass, a site one unfinished assembly, a slug and a path one topic",
        _I13,
    ),
    "I15": ("nothing waits that can never run, and nothing that could be promoted", _I15),
}
"""By id: what must hold, and the query whose rows break it."""
