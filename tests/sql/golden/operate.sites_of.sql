SELECT DISTINCT jobs.site_id
FROM jobs
WHERE jobs.id = any(%(p_ids)s)
