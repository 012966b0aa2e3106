WITH mine AS (
  SELECT j.id AS id, held_in.token AS token, held_in.lease_seconds AS lease_seconds
  FROM jobs AS j
  JOIN json_to_recordset(CAST(%(held)s::JSON AS JSON)) AS held_in(job_id BIGINT, token UUID, lease_seconds FLOAT) ON
      j.id = held_in.job_id AND j.token = held_in.token
  ORDER BY j.id
  FOR NO KEY UPDATE OF j SKIP LOCKED
), renewed AS (
  UPDATE jobs
  SET lease_expires_at=(clock_timestamp() + mine.lease_seconds * interval '1 second')
  FROM mine
  WHERE jobs.id = mine.id AND jobs.token = mine.token
  RETURNING jobs.id
)
SELECT r.id, CASE WHEN (renewed.id IS NOT NULL) THEN 'renewed' ELSE 'locked' END AS answer, r.cancel_requested
FROM jobs AS r
JOIN json_to_recordset(CAST(%(held)s::JSON AS JSON)) AS h(job_id BIGINT, token UUID, lease_seconds FLOAT) ON r.id =
    h.job_id AND r.token = h.token
LEFT OUTER JOIN renewed ON renewed.id = r.id
