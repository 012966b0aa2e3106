SELECT pages_in.target, pages_in.path, topics.slug
FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
    BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
    remote TEXT, seen TEXT)
JOIN LATERAL (
  SELECT publications.topic_id AS topic_id
  FROM publications
  WHERE publications.site_id = pages_in.site_id AND publications.target = pages_in.target AND publications.live_path =
      pages_in.path
  LIMIT 1
) AS there ON true
LEFT OUTER JOIN topics ON topics.id = there.topic_id
WHERE there.topic_id IS DISTINCT
FROM pages_in.topic_id
