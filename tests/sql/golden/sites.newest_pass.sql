SELECT jobs.id, jobs.state, jobs.stage, jobs.reserved_by
FROM jobs
JOIN topics ON topics.id = jobs.topic_id
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = %(p_slug)s::VARCHAR AND jobs.finished_at IS NULL
