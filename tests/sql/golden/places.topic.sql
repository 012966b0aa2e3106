SELECT topics.id, topics.lane_id, lanes.name AS lane, topics.position, topics.path, jobs.id AS job_id, jobs.state,
    jobs.stage
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
LEFT OUTER JOIN jobs ON jobs.topic_id = topics.id AND jobs.finished_at IS NULL
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = %(p_slug)s::VARCHAR
