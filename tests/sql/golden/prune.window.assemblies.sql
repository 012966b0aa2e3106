SELECT max("some".id) AS max_1
FROM (
  SELECT jobs.id AS id
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.topic_id IS NULL AND jobs.id > %(p_after)s::BIGINT
  ORDER BY jobs.id
  LIMIT %(p_window)s::INTEGER
) AS "some"
