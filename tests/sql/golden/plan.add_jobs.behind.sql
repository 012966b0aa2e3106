INSERT INTO jobs (site_id, lane_id, topic_id, position, pass, stage, cleared, state, gate_id, max_attempts, run_at)
SELECT topics.site_id, topics.lane_id, topics.id, topics.position, topics.pass, first.name, CASE WHEN topics.released
    THEN 2147483647 ELSE coalesce(
  (
    SELECT max(before.ordinal) AS max_1
    FROM stages AS before
    WHERE before.site_id = %(p_site_id)s::BIGINT AND before.ordinal < first.ordinal
  ), -1
) END AS anon_1, CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR topics.position > gate.passed AND CASE WHEN
    topics.released THEN 2147483647 ELSE coalesce(
  (
    SELECT max(before.ordinal) AS max_1
    FROM stages AS before
    WHERE before.site_id = %(p_site_id)s::BIGINT AND before.ordinal < first.ordinal
  ), -1
) END < gate.ordinal)) THEN 'waiting' ELSE 'pending' END AS anon_2, CASE WHEN (gate.width IS NOT NULL AND (gate.width >
    1 OR topics.position > gate.passed AND CASE WHEN topics.released THEN 2147483647 ELSE coalesce(
  (
    SELECT max(before.ordinal) AS max_1
    FROM stages AS before
    WHERE before.site_id = %(p_site_id)s::BIGINT AND before.ordinal < first.ordinal
  ), -1
) END < gate.ordinal)) THEN gate.id END AS anon_3, coalesce(
  (
    SELECT CAST((lane.overrides -> first.name) ->> 'max_attempts' AS INTEGER) AS anon_4
    FROM lanes AS lane
    WHERE lane.id = topics.lane_id
  ), first.max_attempts
) AS coalesce_1, clock_timestamp() AS clock_timestamp_1
FROM topics
JOIN json_to_recordset(CAST(%(ids)s::JSON AS JSON)) AS ids_in(id BIGINT) ON topics.id = ids_in.id
JOIN stages AS first ON first.site_id = topics.site_id AND first.ordinal = coalesce(
  (
    SELECT min(following.ordinal) AS min_1
    FROM stages AS following
    WHERE following.site_id = %(p_site_id)s::BIGINT AND following.state != 'retired' AND following.ordinal > (
      SELECT min(later.ordinal) AS min_2
      FROM stages AS later
      WHERE later.site_id = %(p_site_id)s::BIGINT AND later.state != 'retired'
    )
  ), (
    SELECT min(later.ordinal) AS min_2
    FROM stages AS later
    WHERE later.site_id = %(p_site_id)s::BIGINT AND later.state != 'retired'
  )
)
LEFT OUTER JOIN gates AS gate ON gate.lane_id = topics.lane_id AND gate.stage = first.name
ORDER BY topics.lane_id, topics.position
RETURNING jobs.id
