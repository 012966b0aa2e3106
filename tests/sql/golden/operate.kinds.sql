SELECT jobs.id, jobs.topic_id, jobs.site_id
FROM jobs
WHERE jobs.id = any(%(p_ids)s)
ORDER BY jobs.id
