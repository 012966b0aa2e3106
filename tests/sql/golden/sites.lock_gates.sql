SELECT gates.id
FROM gates
WHERE gates.lane_id IN (
  SELECT lanes.id
  FROM lanes
  WHERE lanes.site_id = %(p_site_id)s::BIGINT
)
ORDER BY gates.id
FOR NO KEY UPDATE
