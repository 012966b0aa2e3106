WITH j AS (
  SELECT jobs.id AS id, jobs.site_id AS site_id, jobs.lane_id AS lane_id, jobs.stage AS stage, jobs.gate_id AS gate_id
  FROM jobs
  WHERE jobs.id = any(%(p_ids)s)
)
SELECT j.gate_id
FROM j
WHERE j.gate_id IS NOT NULL
UNION
SELECT gates.id
FROM j
JOIN stages AS here ON here.site_id = j.site_id AND here.name = j.stage
JOIN stages AS following ON following.site_id = j.site_id AND following.ordinal = (
  SELECT min(later.ordinal) AS min_1
  FROM stages AS later
  WHERE later.site_id = j.site_id AND later.ordinal > here.ordinal AND later.state != 'retired'
)
JOIN gates ON gates.lane_id = j.lane_id AND gates.stage = following.name
