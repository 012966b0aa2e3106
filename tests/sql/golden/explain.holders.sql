SELECT jobs.id, topics.slug AS topic, jobs.state
FROM jobs
JOIN topics ON topics.id = jobs.topic_id
WHERE jobs.gate_id = %(p_gate_id)s::BIGINT AND jobs.slot IS NOT NULL
ORDER BY jobs.slot
LIMIT %(p_limit)s::BIGINT
