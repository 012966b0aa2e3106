SELECT jobs.id
FROM jobs
WHERE jobs.topic_id = %(p_topic_id)s::BIGINT AND jobs.finished_at IS NULL
FOR NO KEY UPDATE
