SELECT jobs.stage, count(*) AS count, min(jobs.run_at) AS since, min(jobs.id) AS example
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.state = 'pending' AND jobs.run_at <= statement_timestamp() -
    %(p_overdue_seconds)s * interval '1 second' AND jobs.attempts + jobs.given_back + jobs.snoozed = 0
GROUP BY jobs.stage
ORDER BY jobs.stage
