SELECT lanes.id AS lane_id, lanes.name AS lane, lanes.state, gates.id, gates.width
FROM lanes
LEFT OUTER JOIN gates ON gates.lane_id = lanes.id AND gates.stage = %(p_stage)s::VARCHAR
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND coalesce((lanes.overrides -> %(p_stage)s::VARCHAR) ? 'width', false) IS
    false
ORDER BY lanes.id
