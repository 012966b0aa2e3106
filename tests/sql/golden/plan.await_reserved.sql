SELECT jobs.id
FROM jobs
WHERE jobs.lane_id IN (
  SELECT gates.lane_id
  FROM gates
  WHERE gates.id = any(%(gates)s::BIGINT[])
) AND jobs.state = 'reserved'
ORDER BY jobs.id
FOR NO KEY UPDATE
