"""The invariants of what is kept: ends, revisions, topics, events, pages, ticks; floor 1."""

from pipeline.sql.audit.shared import EXCUSED, OPEN, PRUNED
from pipeline.states import HOUSE_VERBS, TRANSITIONS

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
SELECT 'revision without an accepted attempt' AS fault, lost.id AS revision_id, lost.fence
FROM (SELECT r.id, r.topic_id, r.fence FROM revisions r
      WHERE r.origin = 'generated'
        AND NOT EXISTS (SELECT FROM attempts a JOIN jobs j ON j.id = a.job_id
                        WHERE a.fence = r.fence AND a.outcome = 'done' AND j.topic_id = r.topic_id)
      OFFSET 0) lost
JOIN topics t ON t.id = lost.topic_id LEFT JOIN {PRUNED} pruned ON pruned.site_id = t.site_id
WHERE NOT {EXCUSED}
UNION ALL
SELECT 'attempt with several revisions', min(r.id), r.fence
FROM revisions r WHERE r.fence IS NOT NULL GROUP BY r.fence HAVING count(*) > 1
UNION ALL
SELECT 'accepted draft that is lost', t.id, t.revisions
FROM topics t LEFT JOIN (SELECT topic_id, count(*) AS there FROM revisions GROUP BY topic_id) r ON r.topic_id = t.id
WHERE t.revisions <> coalesce(r.there, 0)
"""

_I13 = f"""
SELECT 'unfinished passes' AS fault, topic_id AS id, count(*) AS found
FROM jobs WHERE topic_id IS NOT NULL AND state {OPEN} GROUP BY topic_id HAVING count(*) > 1
UNION ALL
SELECT 'unfinished assemblies', site_id, count(*)
FROM jobs WHERE topic_id IS NULL AND state {OPEN} GROUP BY site_id HAVING count(*) > 1
UNION ALL
SELECT 'topics of one slug', min(id), count(*) FROM topics GROUP BY site_id, slug HAVING count(*) > 1
UNION ALL
SELECT 'topics of one path', min(id), count(*) FROM topics GROUP BY site_id, path HAVING count(*) > 1
UNION ALL
SELECT 'topics without their newest pass', t.id, t.pass
FROM topics t WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.topic_id = t.id AND j.pass = t.pass)
"""

_EDGES = ", ".join(
    f"('{t.verb}', '{source}', '{target}')" for t in TRANSITIONS.values() for source, target in sorted(t.edges)
)
_HOUSE = ", ".join(f"'{verb}'" for verb in sorted(HOUSE_VERBS))

_I14 = f"""
SELECT 'no such verb from there' AS fault, e.id AS event_id, e.job_id, e.verb, e.from_state, e.to_state
FROM events e LEFT JOIN (VALUES {_EDGES}) legal (verb, source, target)
  ON (legal.verb, legal.source, legal.target) = (e.verb, e.from_state, e.to_state)
WHERE e.job_id IS NOT NULL AND legal.verb IS NULL
UNION ALL
SELECT 'no such verb of the house', id, job_id, verb, from_state, to_state
FROM events WHERE job_id IS NULL AND verb NOT IN ({_HOUSE})
"""

# Which token and fence anybody ever had, as far as a page speaks of them. What was pruned is known by the event alone.
_I17 = f"""
WITH page AS NOT MATERIALIZED (
    SELECT p.*, p.live_fence <= h.fence AS live_pruned, p.intent_fence <= h.fence AS intent_pruned
    FROM publications p
    LEFT JOIN {PRUNED} h ON h.site_id = p.site_id),
held AS NOT MATERIALIZED (
    SELECT a.fence, a.token, a.job_id, a.reserved_at, a.ended_at FROM attempts a
    UNION ALL SELECT fence, token, id, reserved_at, 'infinity' FROM jobs WHERE state = 'reserved'),
live AS (
    SELECT p.id, p.live_path,
           CASE WHEN held.fence IS NULL AND p.live_pruned IS NOT TRUE THEN 'live, and confirmed by nobody'
                WHEN j.site_id <> p.site_id OR j.topic_id <> p.topic_id THEN 'confirmed by the job of another page'
                WHEN p.changed_at > held.ended_at + interval '1 second' THEN 'confirmed when the token was gone'
           END AS fault
    FROM page p LEFT JOIN held ON held.fence = p.live_fence LEFT JOIN jobs j ON j.id = held.job_id
    WHERE p.live_path IS NOT NULL)
SELECT 'two live pages of one path' AS fault, min(id) AS publication_id, lower(trim(BOTH '/' FROM live_path)) AS path
FROM page WHERE live_path IS NOT NULL
GROUP BY site_id, target, lower(trim(BOTH '/' FROM live_path)) HAVING count(*) > 1
UNION ALL
SELECT fault, id, live_path FROM live WHERE fault IS NOT NULL
UNION ALL
SELECT 'intended under a token that nobody had', p.id, p.intent_path
FROM page p LEFT JOIN held ON held.fence = p.intent_fence AND held.token = p.intent_token
WHERE p.intent_token IS NOT NULL AND held.fence IS NULL AND p.intent_pruned IS NOT TRUE
"""

# A job does not say yet for which tick it was planned: what is asked is whether the ticks themselves can be true.
_I18 = """
SELECT 'one tick twice' AS fault, schedule_id, due_at, count(*) AS found
FROM schedule_ticks GROUP BY schedule_id, due_at HAVING count(*) > 1
UNION ALL
SELECT 'of no schedule', t.schedule_id, t.due_at, 1
FROM schedule_ticks t WHERE NOT EXISTS (SELECT FROM schedules s WHERE s.id = t.schedule_id)
UNION ALL
SELECT 'at no time', schedule_id, due_at, 1 FROM schedule_ticks WHERE NOT isfinite(due_at)
UNION ALL
SELECT 'before it was due', schedule_id, due_at, 1
FROM schedule_ticks WHERE isfinite(due_at) AND due_at > created_at + interval '1 minute'
"""

RECORDS: dict[str, tuple[str, str]] = {
    "I11": ("done and skipped jobs have a finish time, no other has, and nothing leaves them", _I11),
    "I12": ("each generated revision comes from one accepted attempt, and none that was accepted is lost", _I12),
    "I13": (
        "a topic has at most one unfinished pass and always its newest, a site one unfinished assembly,"
        " a slug and a path one topic",
        _I13,
    ),
    "I14": ("every event is a legal verb, from a state that it allows to one that it may reach", _I14),
    "I17": ("a path has one live page, which a job confirmed while it held its token", _I17),
    "I18": ("a tick of a schedule fires once, when it is due; which job it planned is not on record", _I18),
}
