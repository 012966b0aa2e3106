DELETE FROM findings USING jobs, attempts
WHERE jobs.id = any(%(p_ids)s) AND attempts.job_id = jobs.id AND findings.topic_id = jobs.topic_id AND findings.fence =
    attempts.fence
