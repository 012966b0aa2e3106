SELECT jobs.id, fast.times
FROM jobs
JOIN LATERAL (
  SELECT count(*) AS times
  FROM (
    SELECT a.outcome AS outcome, a.ended_at - a.reserved_at < interval '5 seconds' AS fast
    FROM attempts AS a
    WHERE a.job_id = jobs.id
    ORDER BY a.fence DESC
    LIMIT 5
  ) AS few
  WHERE few.outcome IN ('retry', 'failed', 'expired') AND few.fast
) AS fast ON true
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL AND jobs.state IN ('pending', 'reserved') AND
    jobs.attempts >= 3 AND fast.times >= 3
ORDER BY jobs.id
LIMIT %(p_limit)s::BIGINT
