SELECT topics.slug, topics.title, topics.type, lanes.name AS lane, topics.position, topics.path, topics.pass AS number,
    newest.id AS job_id, newest.stage, newest.state, live.live_path
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
LEFT OUTER JOIN LATERAL (
  SELECT jobs.id AS id, jobs.stage AS stage, jobs.state AS state
  FROM jobs
  WHERE jobs.topic_id = topics.id
  ORDER BY jobs.pass DESC, jobs.id DESC
  LIMIT 1
) AS newest ON true
LEFT OUTER JOIN (
  SELECT publications.topic_id AS topic_id, min(publications.live_path) AS live_path
  FROM publications
  WHERE publications.site_id = %(p_site_id)s::BIGINT
  GROUP BY publications.topic_id
) AS live ON live.topic_id = topics.id
WHERE topics.site_id = %(p_site_id)s::BIGINT
ORDER BY lanes.id, topics.position
