SELECT jobs.id, lanes.name AS lane, topics.slug, jobs.position, jobs.stage, jobs.state, jobs.hold, EXISTS (
  SELECT *
  FROM gates
  WHERE gates.lane_id = jobs.lane_id AND gates.width = 1 AND gates.passed < jobs.position AND gates.ordinal >
      jobs.cleared
) AS owes
FROM jobs
JOIN topics ON topics.id = jobs.topic_id
JOIN lanes ON lanes.id = jobs.lane_id
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL
ORDER BY lanes.id, jobs.position
