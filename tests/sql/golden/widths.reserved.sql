SELECT jobs.lane_id, jobs.id, jobs.stage
FROM jobs
WHERE jobs.gate_id = any(CAST(%(gates)s AS BIGINT[])) AND jobs.state = 'reserved'
ORDER BY jobs.id
