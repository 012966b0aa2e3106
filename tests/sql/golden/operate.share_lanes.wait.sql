SELECT lanes.id
FROM lanes
WHERE lanes.id IN (
  SELECT jobs.lane_id
  FROM jobs
  WHERE jobs.id = any(%(p_ids)s)
)
ORDER BY lanes.id
FOR SHARE
