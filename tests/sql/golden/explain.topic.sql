SELECT topics.id, topics.slug, topics.position, topics.pass AS number, topics.released, topics.lane_id, lanes.name AS
    lane, lanes.state AS lane_state, (
  SELECT jobs.id
  FROM jobs
  WHERE jobs.topic_id = topics.id
  ORDER BY jobs.pass DESC, jobs.id DESC
  LIMIT 1
) AS job
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = %(p_slug)s::VARCHAR
