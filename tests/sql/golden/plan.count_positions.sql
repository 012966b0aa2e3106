UPDATE lanes
SET next_position=(
  SELECT max(topics.position) + 1 AS anon_1
  FROM topics
  WHERE topics.lane_id = lanes.id
)
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = any(%(p_names)s::TEXT[]) AND (
  SELECT max(topics.position) + 1 AS anon_1
  FROM topics
  WHERE topics.lane_id = lanes.id
) > lanes.next_position
