UPDATE lanes
SET overrides=%(p_overrides)s::JSONB
WHERE lanes.id = %(p_lane_id)s::BIGINT
