UPDATE lanes
SET state=%(p_state)s::VARCHAR
WHERE lanes.id = %(p_lane_id)s::BIGINT
RETURNING lanes.id
