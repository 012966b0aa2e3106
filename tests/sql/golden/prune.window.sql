SELECT max("some".id) AS max_1
FROM (
  SELECT topics.id AS id
  FROM topics
  WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.pass > 1 AND topics.id > %(p_after)s::BIGINT
  ORDER BY topics.id
  LIMIT %(p_window)s::INTEGER
) AS "some"
