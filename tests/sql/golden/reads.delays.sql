SELECT jobs.stage, count(*) FILTER (WHERE jobs.state = 'pending' AND jobs.run_at <= statement_timestamp() -
    %(p_overdue_seconds)s * interval '1 second') AS overdue, count(*) FILTER (WHERE jobs.state = 'reserved' AND
    jobs.lease_expires_at <= statement_timestamp()) AS stuck
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL AND jobs.state IN ('pending', 'reserved')
GROUP BY jobs.stage
