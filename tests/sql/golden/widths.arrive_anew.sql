WITH "new" AS (
  SELECT j.id AS id, j.state AS state, CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR j.position > gate.passed
      AND j.cleared < gate.ordinal)) THEN gate.id END AS gate_id, CASE WHEN (j.hold IS NOT NULL OR lane.state !=
      'active') THEN 'waiting' ELSE CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR j.position > gate.passed
      AND j.cleared < gate.ordinal)) THEN 'waiting' ELSE 'pending' END END AS new_state
  FROM gates AS gate
  JOIN lanes AS lane ON lane.id = gate.lane_id
  JOIN jobs AS j ON j.lane_id = gate.lane_id AND j.stage = gate.stage
  WHERE gate.id = any(CAST(%(gates)s AS BIGINT[])) AND j.state IN ('waiting', 'pending')
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
)
UPDATE jobs
SET state="new".new_state, run_at=CASE WHEN ("new".new_state = 'pending' AND jobs.state = 'waiting') THEN
    greatest(jobs.release_at, jobs.retry_at, clock_timestamp()) ELSE jobs.run_at END, gate_id="new".gate_id, slot=NULL
FROM "new"
WHERE jobs.id = "new".id AND jobs.state = "new".state
RETURNING jobs.id
