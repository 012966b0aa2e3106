SELECT publications.id, publications.topic_id, publications.intent_path
FROM publications
WHERE publications.id IN (
  SELECT publications.id
  FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(publication_id BIGINT, topic_id BIGINT, path TEXT,
      hash TEXT, revision BIGINT, inputs TEXT, remote TEXT)
  JOIN publications ON publications.topic_id = pages_in.topic_id
  WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR
  UNION ALL
  SELECT publications.id
  FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(publication_id BIGINT, topic_id BIGINT, path TEXT,
      hash TEXT, revision BIGINT, inputs TEXT, remote TEXT)
  JOIN publications ON publications.intent_path = pages_in.path
  WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR AND
      pages_in.topic_id IS NULL AND publications.topic_id IS NULL
)
ORDER BY publications.id
FOR NO KEY UPDATE
