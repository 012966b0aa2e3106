UPDATE jobs
SET run_at=clock_timestamp()
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.stage = 'assemble' AND jobs.state = 'pending' AND jobs.retry_at IS
    NULL AND jobs.run_at > statement_timestamp()
RETURNING jobs.id
