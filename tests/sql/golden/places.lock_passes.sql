SELECT jobs.id, jobs.state
FROM jobs
WHERE jobs.topic_id = %(p_topic_id)s::BIGINT
ORDER BY jobs.id
FOR NO KEY UPDATE
