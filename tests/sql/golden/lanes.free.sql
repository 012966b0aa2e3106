WITH chosen AS (
  SELECT j.id AS id
  FROM jobs AS j
  WHERE j.lane_id = %(p_lane_id)s::BIGINT AND j.state = 'waiting' AND j.gate_id IS NULL AND j.hold IS NULL
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
)
UPDATE jobs
SET state='pending', run_at=greatest(jobs.release_at, jobs.retry_at, clock_timestamp())
FROM chosen
WHERE jobs.id = chosen.id AND jobs.state = 'waiting'
RETURNING jobs.id
