SELECT 'lane' AS kind, lanes.name, lanes.state
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.state != 'active' AND (EXISTS (
  SELECT *
  FROM jobs
  WHERE jobs.lane_id = lanes.id AND jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL AND jobs.state IN
      ('waiting', 'pending')
))
UNION ALL
SELECT 'stage', stages.name, stages.state
FROM stages
WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state = 'paused' AND (EXISTS (
  SELECT *
  FROM jobs
  WHERE jobs.stage = stages.name AND jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL AND jobs.state IN
      ('waiting', 'pending')
))
ORDER BY kind, name
