SELECT count(*) AS count_1
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.state = 'reserved'
