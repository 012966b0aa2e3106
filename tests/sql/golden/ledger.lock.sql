SELECT publications.id, publications.site_id, publications.target, publications.topic_id, publications.intent_path
FROM publications
WHERE publications.id IN (
  SELECT publications.id
  FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
      BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
      remote TEXT, seen TEXT)
  JOIN publications ON publications.topic_id = pages_in.topic_id AND publications.target = pages_in.target
  UNION ALL
  SELECT publications.id
  FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
      BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
      remote TEXT, seen TEXT)
  JOIN publications ON publications.site_id = pages_in.site_id AND publications.target = pages_in.target AND
      publications.intent_path = pages_in.path
  WHERE pages_in.topic_id IS NULL AND publications.topic_id IS NULL
)
ORDER BY publications.id
FOR NO KEY UPDATE
