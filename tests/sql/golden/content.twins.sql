SELECT asked_in.n, 'title', found.slug
FROM json_to_recordset(CAST(%(asked)s::JSON AS JSON)) AS asked_in(n INTEGER, site_id BIGINT, topic_id BIGINT, title_key
    TEXT, description_key TEXT)
JOIN LATERAL (
  SELECT topics.slug AS slug
  FROM revisions
  JOIN topics ON topics.id = revisions.topic_id
  WHERE topics.revision_id = revisions.id AND revisions.site_id = asked_in.site_id AND revisions.title_key =
      asked_in.title_key AND topics.id != asked_in.topic_id
  ORDER BY topics.slug
  LIMIT 5
) AS found ON true
UNION ALL
SELECT asked_in.n, 'description', found.slug
FROM json_to_recordset(CAST(%(asked)s::JSON AS JSON)) AS asked_in(n INTEGER, site_id BIGINT, topic_id BIGINT, title_key
    TEXT, description_key TEXT)
JOIN LATERAL (
  SELECT topics.slug AS slug
  FROM revisions
  JOIN topics ON topics.id = revisions.topic_id
  WHERE topics.revision_id = revisions.id AND revisions.site_id = asked_in.site_id AND revisions.description_key =
      asked_in.description_key AND topics.id != asked_in.topic_id
  ORDER BY topics.slug
  LIMIT 5
) AS found ON true
