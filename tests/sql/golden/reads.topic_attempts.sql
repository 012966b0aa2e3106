SELECT attempts.stage, attempts.round, attempts.outcome, attempts.reserved_at, attempts.ended_at, attempts.worker,
    attempts.error_class, attempts.error
FROM attempts
WHERE attempts.job_id = (
  SELECT max(jobs.id) AS max_1
  FROM jobs
  WHERE jobs.topic_id = %(p_topic_id)s::BIGINT
)
ORDER BY attempts.fence
