SELECT lanes.id, lanes.name
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.state != 'active' AND (EXISTS (
  SELECT *
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.lane_id = lanes.id AND jobs.state = 'pending'
))
ORDER BY lanes.id
