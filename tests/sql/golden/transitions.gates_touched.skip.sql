WITH mine AS (
  SELECT j.id AS id, j.site_id AS site_id, j.lane_id AS lane_id, j.stage AS stage, j.cleared AS cleared, j.gate_id AS
      gate_id
  FROM jobs AS j
  JOIN json_to_recordset(CAST(%(acks)s::JSON AS JSON)) AS acks_in(job_id BIGINT, token UUID, delay_seconds FLOAT,
      to_stage TEXT, hold TEXT, error_class TEXT, error TEXT, metrics JSONB, made_from TEXT) ON j.id = acks_in.job_id
      AND j.token = acks_in.token
)
SELECT mine.id, mine.gate_id
FROM mine
WHERE mine.gate_id IS NOT NULL
UNION
SELECT mine.id, gates.id AS id_1
FROM mine
JOIN lanes ON lanes.id = mine.lane_id AND lanes.on_failed = 'skip'
JOIN gates ON gates.lane_id = lanes.id
