SELECT jobs.id
FROM jobs
WHERE jobs.topic_id = %(p_topic_id)s::BIGINT AND (jobs.state NOT IN ('done', 'skipped'))
FOR NO KEY UPDATE
