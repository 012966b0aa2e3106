SELECT jobs.stage, jobs.state, count(*) AS count_1, count(*) FILTER (WHERE jobs.state = 'pending' AND jobs.run_at <=
    statement_timestamp()) AS anon_1, EXTRACT(epoch FROM (min(jobs.run_at) FILTER (WHERE jobs.state = 'pending' AND
    jobs.run_at > statement_timestamp())) - statement_timestamp()) AS anon_2
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL
GROUP BY jobs.stage, jobs.state
