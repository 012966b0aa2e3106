UPDATE topics
SET lane_id=%(p_lane_id)s::BIGINT, position=(
  SELECT lanes.next_position
  FROM lanes
  WHERE lanes.id = %(p_lane_id)s::BIGINT
)
WHERE topics.id = %(p_topic_id)s::BIGINT
