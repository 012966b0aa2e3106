SELECT jobs.id
FROM jobs
WHERE jobs.id = %(p_job_id)s::BIGINT AND jobs.token = %(p_token)s::UUID AND jobs.state = 'reserved'
FOR SHARE
