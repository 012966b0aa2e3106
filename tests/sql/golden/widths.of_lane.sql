SELECT lanes.id AS lane_id, lanes.name AS lane, lanes.state, gates.id, gates.width
FROM lanes
LEFT OUTER JOIN gates ON gates.lane_id = lanes.id AND gates.stage = %(p_stage)s::VARCHAR
WHERE lanes.id = %(p_lane_id)s::BIGINT
ORDER BY lanes.id
