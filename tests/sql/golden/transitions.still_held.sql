SELECT jobs.id
FROM jobs
JOIN json_to_recordset(CAST(%(acks)s::JSON AS JSON)) AS acks_in(job_id BIGINT, token UUID, delay_seconds FLOAT, to_stage
    TEXT, hold TEXT, error_class TEXT, error TEXT, metrics JSONB, made_from TEXT) ON jobs.id = acks_in.job_id AND
    jobs.token = acks_in.token
