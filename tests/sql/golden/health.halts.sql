SELECT jobs.id, lanes.name AS lane, jobs.stage, jobs.state, jobs.position, (
  SELECT count(*) AS count_1
  FROM jobs AS behind
  JOIN gates AS gate ON gate.id = behind.gate_id AND gate.width = 1
  WHERE behind.lane_id = jobs.lane_id AND behind.position > jobs.position AND behind.state = 'waiting'
) AS waiting
FROM jobs
LEFT OUTER JOIN lanes ON lanes.id = jobs.lane_id
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.state IN ('cancelled', 'failed', 'repair')
ORDER BY jobs.id
LIMIT %(p_limit)s::BIGINT
