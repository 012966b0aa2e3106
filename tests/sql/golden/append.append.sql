WITH added AS (
  INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
  SELECT %(p_site_id)s::BIGINT AS anon_1, given.lane_id AS lane_id, given.position AS position, given.slug AS slug,
      given.path AS path, given.title AS title, given.type AS type, given.brief AS brief, given.input_hash AS input_hash
  FROM json_to_recordset(CAST(%(p_topics)s::VARCHAR AS JSON)) AS given(lane_id BIGINT, position BIGINT, slug TEXT, path
      TEXT, title TEXT, type TEXT, brief JSONB, input_hash TEXT)
  ON CONFLICT (site_id, slug) DO NOTHING
  RETURNING topics.id, topics.lane_id, topics.position
)
INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, state, gate_id, max_attempts, run_at)
SELECT %(p_site_id)s::BIGINT AS anon_1, added.lane_id, added.id, added.position, first.name, CASE WHEN (lanes.state !=
    'active') THEN 'waiting' ELSE CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR added.position > gate.passed
    AND gate.ordinal > -1)) THEN 'waiting' ELSE 'pending' END END AS anon_2, CASE WHEN (gate.width IS NOT NULL AND
    (gate.width > 1 OR added.position > gate.passed AND gate.ordinal > -1)) THEN gate.id END AS anon_3,
    coalesce(CAST((lanes.overrides -> first.name) ->> 'max_attempts' AS INTEGER), first.max_attempts) AS coalesce_1,
    clock_timestamp() AS clock_timestamp_1
FROM added
JOIN lanes ON lanes.id = added.lane_id
JOIN stages AS first ON first.site_id = %(p_site_id)s::BIGINT AND first.ordinal = (
  SELECT min(stages.ordinal) AS min_1
  FROM stages
  WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
)
LEFT OUTER JOIN gates AS gate ON gate.lane_id = added.lane_id AND gate.stage = first.name
ORDER BY added.id
RETURNING jobs.topic_id, jobs.lane_id, jobs.position, jobs.id
