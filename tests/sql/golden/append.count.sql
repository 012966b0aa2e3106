UPDATE lanes
SET next_position=given.next
FROM unnest(CAST(%(p_lanes)s::BIGINT[] AS BIGINT[]), CAST(%(p_next)s::BIGINT[] AS BIGINT[])) AS given(lane_id, next)
WHERE lanes.id = given.lane_id
