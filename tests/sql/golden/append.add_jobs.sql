INSERT INTO jobs (site_id, lane_id, topic_id, position, stage, state, gate_id, max_attempts, run_at)
SELECT %(p_site_id)s::BIGINT AS anon_1, "new".lane_id, "new".id, "new".position, first.name, CASE WHEN (lanes.state !=
    'active') THEN 'waiting' ELSE CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR "new".position > gate.passed
    AND gate.ordinal > -1)) THEN 'waiting' ELSE 'pending' END END AS anon_2, CASE WHEN (gate.width IS NOT NULL AND
    (gate.width > 1 OR "new".position > gate.passed AND gate.ordinal > -1)) THEN gate.id END AS anon_3,
    coalesce(CAST((lanes.overrides -> first.name) ->> 'max_attempts' AS INTEGER), first.max_attempts) AS coalesce_1,
    clock_timestamp() AS clock_timestamp_1
FROM unnest(CAST(%(p_lanes)s::BIGINT[] AS BIGINT[]), CAST(%(p_first)s::BIGINT[] AS BIGINT[]), CAST(%(p_last)s::BIGINT[]
    AS BIGINT[])) AS given(lane_id, first, last)
JOIN lanes ON lanes.id = given.lane_id
JOIN LATERAL (
  SELECT topics.id AS id, topics.lane_id AS lane_id, topics.position AS position
  FROM topics
  WHERE topics.lane_id = given.lane_id AND topics.position BETWEEN given.first AND given.last
  ORDER BY topics.position
  LIMIT (given.last - given.first) + 1
) AS "new" ON true
JOIN stages AS first ON first.site_id = %(p_site_id)s::BIGINT AND first.ordinal = (
  SELECT min(stages.ordinal) AS min_1
  FROM stages
  WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
)
LEFT OUTER JOIN gates AS gate ON gate.lane_id = lanes.id AND gate.stage = first.name
ORDER BY "new".id
RETURNING jobs.topic_id, jobs.lane_id, jobs.position, jobs.id
