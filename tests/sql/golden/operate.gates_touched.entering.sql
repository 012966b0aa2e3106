SELECT DISTINCT gates.id
FROM jobs
JOIN gates ON gates.lane_id = jobs.lane_id
WHERE jobs.id = any(%(p_ids)s) AND (gates.id = jobs.gate_id OR gates.stage = coalesce(%(p_stage)s::VARCHAR, jobs.stage)
    OR gates.ordinal = (
  SELECT min(later.ordinal) AS min_1
  FROM stages AS later
  WHERE later.site_id = jobs.site_id AND later.ordinal >= (
    SELECT stood.ordinal
    FROM stages AS stood
    WHERE stood.site_id = jobs.site_id AND stood.name = jobs.stage
  ) AND later.state != 'retired'
))
