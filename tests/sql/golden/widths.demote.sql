WITH chosen AS (
  SELECT j.id AS id
  FROM jobs AS j
  WHERE j.gate_id = any(CAST(%(gates)s AS BIGINT[])) AND j.state = 'pending'
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
)
UPDATE jobs
SET state='waiting', slot=NULL
FROM chosen
WHERE jobs.id = chosen.id AND jobs.state = 'pending'
RETURNING jobs.id
