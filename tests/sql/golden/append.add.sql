WITH given AS (
  SELECT given.lane_id AS lane_id, given.position AS position, given.slug AS slug, given.path AS path, given.title AS
      title, given.type AS type, given.brief AS brief, given.input_hash AS input_hash
  FROM json_to_recordset(CAST(%(p_topics)s::VARCHAR AS JSON)) AS given(lane_id BIGINT, position BIGINT, slug TEXT, path
      TEXT, title TEXT, type TEXT, brief JSONB, input_hash TEXT)
), "new" AS (
  INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
  SELECT %(p_site_id)s::BIGINT AS anon_1, given.lane_id AS lane_id, given.position AS position, given.slug AS slug,
      given.path AS path, given.title AS title, given.type AS type, given.brief AS brief, given.input_hash AS input_hash
  FROM given
  WHERE NOT (EXISTS (
    SELECT there.id
    FROM given
    JOIN LATERAL (
      SELECT topics.id AS id
      FROM topics
      WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = given.slug
      LIMIT 1
    ) AS there ON true
  )) AND NOT (EXISTS (
    SELECT there.id
    FROM given
    JOIN LATERAL (
      SELECT topics.id AS id
      FROM topics
      WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.path = given.path
      LIMIT 1
    ) AS there ON true
  ))
  ON CONFLICT (site_id, slug) DO NOTHING
  RETURNING topics.id, topics.lane_id, topics.position
), counted AS (
  UPDATE lanes
  SET next_position="end".next
  FROM (
    SELECT "new".lane_id AS lane_id, max("new".position) + 1 AS next
    FROM "new"
    WHERE %(p_counts)s
    GROUP BY "new".lane_id
  ) AS "end"
  WHERE lanes.id = "end".lane_id
), made AS (
  INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, state, gate_id, max_attempts, run_at)
  SELECT %(p_site_id)s::BIGINT AS anon_1, "new".lane_id AS lane_id, "new".id AS id, "new".position AS position,
      first.name AS name, CASE WHEN (lanes.state != 'active') THEN 'waiting' ELSE CASE WHEN (gate.width IS NOT NULL AND
      (gate.width > 1 OR "new".position > gate.passed AND gate.ordinal > -1)) THEN 'waiting' ELSE 'pending' END END AS
      anon_2, CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR "new".position > gate.passed AND gate.ordinal >
      -1)) THEN gate.id END AS anon_3, coalesce(CAST((lanes.overrides -> first.name) ->> 'max_attempts' AS INTEGER),
      first.max_attempts) AS coalesce_1, clock_timestamp() AS clock_timestamp_1
  FROM "new"
  JOIN lanes ON lanes.id = "new".lane_id
  JOIN stages AS first ON first.site_id = %(p_site_id)s::BIGINT AND first.ordinal = (
    SELECT min(stages.ordinal) AS min_1
    FROM stages
    WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
  )
  LEFT OUTER JOIN gates AS gate ON gate.lane_id = lanes.id AND gate.stage = first.name
  ORDER BY "new".id
  RETURNING jobs.topic_id, jobs.lane_id, jobs.position, jobs.id, jobs.site_id, jobs.stage, jobs.priority, jobs.state
), told AS (
  SELECT count(pg_notify(%(p_channel)s::VARCHAR, due.word)) AS told
  FROM (
    SELECT concat_ws(' ', made.site_id, made.stage, made.priority) AS word
    FROM made
    WHERE made.state = 'pending' AND %(p_channel)s::VARCHAR IS NOT NULL
    LIMIT 1
  ) AS due
)
SELECT made.topic_id, made.lane_id, made.position, made.id
FROM made
JOIN told ON true
