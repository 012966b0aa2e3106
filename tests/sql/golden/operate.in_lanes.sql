SELECT jobs.id
FROM jobs
WHERE jobs.id = any(%(p_ids)s) AND jobs.lane_id = any(%(p_lane_ids)s::BIGINT[])
ORDER BY jobs.id
