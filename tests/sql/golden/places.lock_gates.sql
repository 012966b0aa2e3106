SELECT gates.id, gates.lane_id, gates.stage, gates.width, gates.passed
FROM gates
WHERE gates.lane_id = any(%(p_lane_ids)s)
ORDER BY gates.id
FOR NO KEY UPDATE
