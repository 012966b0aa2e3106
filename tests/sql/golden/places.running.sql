SELECT jobs.id, jobs.stage, jobs.reserved_by
FROM jobs
JOIN gates ON gates.id = jobs.gate_id AND gates.width = 1
WHERE jobs.lane_id = %(p_lane_id)s::BIGINT AND jobs.position BETWEEN %(p_first)s::BIGINT AND %(p_last)s::BIGINT AND
    jobs.state = 'reserved'
ORDER BY jobs.id
LIMIT 1
