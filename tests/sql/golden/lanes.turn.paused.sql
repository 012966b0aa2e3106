UPDATE lanes
SET state='paused'
WHERE lanes.id = %(p_lane_id)s::BIGINT AND lanes.state = 'active'
RETURNING lanes.id
