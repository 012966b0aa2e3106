SELECT jobs.fence
FROM jobs
WHERE (EXISTS (
  SELECT *
  FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
      BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
      remote TEXT, seen TEXT)
  WHERE jobs.id = pages_in.job_id AND jobs.token = pages_in.token AND jobs.fence = pages_in.fence
)) AND jobs.state = 'reserved'
ORDER BY jobs.id
FOR SHARE OF jobs
