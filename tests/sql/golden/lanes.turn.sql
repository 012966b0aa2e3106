UPDATE lanes
SET state='active'
WHERE lanes.id = %(p_lane_id)s::BIGINT AND lanes.state = 'paused'
RETURNING lanes.id
