SELECT topics.slug, topics.id, sites.slug AS site, topics.path, lanes.name AS lane, topics.position, topics.input_hash,
    topics.made_from, EXISTS (
  SELECT *
  FROM jobs
  WHERE jobs.topic_id = topics.id AND jobs.finished_at IS NULL
) AS busy
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
JOIN sites ON sites.id = topics.site_id
WHERE topics.site_id = %(p_site_id)s::BIGINT
