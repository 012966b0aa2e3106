SELECT lanes.id, lanes.name
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name > %(p_after)s::VARCHAR AND (%(p_end)s::VARCHAR IS NULL OR
    lanes.name <= %(p_end)s::VARCHAR) AND lanes.state != 'active' AND (EXISTS (
  SELECT *
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.lane_id = lanes.id AND jobs.state = 'pending'
))
ORDER BY lanes.id
