UPDATE lanes
SET next_position=(lanes.next_position + 1)
WHERE lanes.id = %(p_lane_id)s::BIGINT
