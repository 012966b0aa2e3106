SELECT jobs.id, jobs.site_id, sites.slug AS site, lanes.name AS lane, topics.slug AS topic, jobs.position, jobs.pass AS
    number, jobs.stage, jobs.state, jobs.round, jobs.attempts, jobs.max_attempts, jobs.run_at, jobs.reserved_by,
    jobs.lease_expires_at, jobs.error_class, CASE WHEN (jobs.state != 'done') THEN (
  SELECT newest.error
  FROM attempts AS newest
  WHERE newest.job_id = jobs.id
  ORDER BY newest.fence DESC
  LIMIT 1
) END AS error
FROM jobs
JOIN sites ON sites.id = jobs.site_id
LEFT OUTER JOIN lanes ON lanes.id = jobs.lane_id
LEFT OUTER JOIN topics ON topics.id = jobs.topic_id
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL
ORDER BY jobs.id
LIMIT %(p_limit)s
