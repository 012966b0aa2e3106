WITH room AS MATERIALIZED (
  SELECT x.id AS id, x.lane_id AS lane_id, x.width AS width, CASE WHEN (x.width = 1) THEN coalesce(
    (
      SELECT b.position
      FROM jobs AS b
      WHERE b.lane_id = x.lane_id AND b.position > x.passed AND b.cleared < x.ordinal AND (b.state NOT IN ('done',
          'skipped'))
      ORDER BY b.position
      LIMIT 1
    ), 0
  ) ELSE 0 END AS head
  FROM gates AS x
  WHERE x.id = any(CAST(%(gates)s AS BIGINT[])) AND x.width IS NOT NULL
), turns AS (
  SELECT room.id AS gate_id, room.lane_id AS lane_id, room.width AS width, ready.id AS id, row_number() OVER (PARTITION
      BY room.id ORDER BY ready.position) AS n
  FROM room
  JOIN LATERAL (
    SELECT w.id AS id, w.position AS position
    FROM jobs AS w
    WHERE w.gate_id = room.id AND w.state = 'waiting' AND w.hold IS NULL AND w.position BETWEEN room.head AND CASE WHEN
        (room.width = 1) THEN room.head ELSE 9223372036854775807 END
    ORDER BY w.position
    LIMIT room.width
  ) AS ready ON true
), slots AS MATERIALIZED (
  SELECT turns.gate_id AS gate_id, turns.width AS width, array(
    (
      SELECT o.slot
      FROM jobs AS o
      WHERE o.gate_id = turns.gate_id AND o.slot IS NOT NULL
    )
  ) AS taken
  FROM turns
  WHERE turns.n = 1 AND (
    SELECT lanes.state
    FROM lanes
    WHERE lanes.id = turns.lane_id
  ) = 'active'
), free AS (
  SELECT slots.gate_id AS gate_id, numbers.slot AS slot, slots.width - cardinality(slots.taken) AS room, row_number()
      OVER (PARTITION BY slots.gate_id ORDER BY numbers.slot) AS n
  FROM slots
  JOIN generate_series(1, slots.width) AS numbers(slot) ON true
  WHERE numbers.slot != all(slots.taken)
)
UPDATE jobs
SET state='pending', run_at=greatest(jobs.release_at, jobs.retry_at, clock_timestamp()), slot=free.slot
FROM turns, free
WHERE jobs.id = turns.id AND free.gate_id = turns.gate_id AND free.n = turns.n AND turns.n <= free.room AND jobs.state
    IS NOT DISTINCT
FROM 'waiting' AND jobs.hold IS NULL
RETURNING jobs.id, jobs.site_id, jobs.stage, jobs.priority
