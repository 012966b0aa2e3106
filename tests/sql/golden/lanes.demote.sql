WITH chosen AS (
  SELECT j.id AS id
  FROM jobs AS j
  WHERE j.site_id = %(p_site_id)s::BIGINT AND j.lane_id = %(p_lane_id)s::BIGINT AND j.state = 'pending'
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
)
UPDATE jobs
SET state='waiting', slot=NULL
FROM chosen
WHERE jobs.id = chosen.id AND jobs.state = 'pending'
RETURNING jobs.id
