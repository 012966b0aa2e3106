WITH room AS (
  SELECT x.id AS id, x.width AS width, CASE WHEN (x.width = 1) THEN (
    SELECT b.position
    FROM jobs AS b
    WHERE b.lane_id = x.lane_id AND b.position > x.passed AND b.cleared < x.ordinal AND b.finished_at IS NULL
    ORDER BY b.position
    LIMIT 1
  ) END AS head, greatest(x.width - (
    SELECT count(*) AS count_1
    FROM jobs AS u
    WHERE u.gate_id = x.id AND u.slot IS NOT NULL
  ), %(greatest_1)s::INTEGER) AS free, array(
    (
      SELECT o.slot
      FROM jobs AS o
      WHERE o.gate_id = x.id AND o.slot IS NOT NULL
    )
  ) AS taken
  FROM gates AS x
  JOIN lanes ON lanes.id = x.lane_id AND lanes.state = 'active'
  WHERE x.id = any(CAST(%(gates)s AS BIGINT[]))
), turns AS (
  SELECT room.id AS gate_id, ready.id AS id, row_number() OVER (PARTITION BY room.id ORDER BY ready.position) AS n
  FROM room
  JOIN LATERAL (
    SELECT w.id AS id, w.position AS position
    FROM jobs AS w
    WHERE w.gate_id = room.id AND w.state = 'waiting' AND w.hold IS NULL AND (room.width > 1 OR w.position = room.head)
    ORDER BY w.position
    LIMIT room.free
  ) AS ready ON true
), free AS (
  SELECT room.id AS gate_id, numbers.slot AS slot, row_number() OVER (PARTITION BY room.id ORDER BY numbers.slot) AS n
  FROM room
  JOIN generate_series(1, room.width) AS numbers(slot) ON true
  WHERE numbers.slot != all(room.taken)
)
UPDATE jobs
SET state='pending', run_at=greatest(jobs.release_at, jobs.retry_at, clock_timestamp()), slot=free.slot
FROM turns, free
WHERE jobs.id = turns.id AND free.gate_id = turns.gate_id AND free.n = turns.n AND jobs.state IS NOT DISTINCT
FROM 'waiting' AND jobs.hold IS NULL
RETURNING jobs.id, jobs.site_id, jobs.stage, jobs.priority
