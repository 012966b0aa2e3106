SELECT gates.id
FROM gates
WHERE gates.lane_id = %(p_lane_id)s::BIGINT
ORDER BY gates.id
