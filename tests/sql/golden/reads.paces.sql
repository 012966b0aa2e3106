WITH newest AS (
  SELECT attempts.job_id AS job_id, attempts.stage AS stage, attempts.outcome AS outcome, attempts.ended_at AS ended_at
  FROM attempts
  ORDER BY attempts.fence DESC
  LIMIT 10000
), span AS (
  SELECT count(*) AS found, min(newest.ended_at) AS oldest
  FROM newest
)
SELECT jobs.site_id, newest.stage, count(*) AS done, max(CASE WHEN (span.found < 10000) THEN 300 ELSE
    least(greatest(CAST(EXTRACT(epoch FROM statement_timestamp() - span.oldest) AS FLOAT), 1), 300) END) AS seconds
FROM newest
JOIN jobs ON jobs.id = newest.job_id
JOIN span ON true
WHERE newest.outcome = 'done' AND newest.ended_at > statement_timestamp() - 300 * interval '1 second'
GROUP BY jobs.site_id, newest.stage
