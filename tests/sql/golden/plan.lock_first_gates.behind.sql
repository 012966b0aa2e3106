SELECT gates.id
FROM gates
WHERE gates.lane_id IN (
  SELECT lanes.id
  FROM lanes
  WHERE lanes.site_id = %(p_site_id)s::BIGINT
) AND gates.stage IN (
  SELECT stages.name
  FROM stages
  WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
  ORDER BY stages.ordinal
  LIMIT 2
)
ORDER BY gates.id
FOR NO KEY UPDATE
