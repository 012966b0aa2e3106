SELECT jobs.id
FROM jobs
WHERE jobs.lane_id = %(p_lane_id)s::BIGINT AND jobs.position BETWEEN %(p_first)s::BIGINT AND %(p_last)s::BIGINT
ORDER BY jobs.id
FOR NO KEY UPDATE
