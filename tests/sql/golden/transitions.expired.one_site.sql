SELECT jobs.id, jobs.token, jobs.fence, jobs.reserved_by, jobs.lease_expires_at <= statement_timestamp() AS "over",
    jobs.stage, jobs.site_id
FROM jobs
WHERE jobs.state = 'reserved' AND jobs.site_id = %(p_site_id)s::BIGINT
ORDER BY jobs.lease_expires_at
