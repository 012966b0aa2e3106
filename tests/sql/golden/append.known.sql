SELECT topics.slug, topics.id, topics.position, jobs.id AS job_id, lanes.name = given.lane AS lane, topics.title =
    given.title AS title, topics.type = given.type AS type, topics.brief = given.brief AS brief
FROM json_to_recordset(CAST(%(p_topics)s::VARCHAR AS JSON)) AS given(lane TEXT, slug TEXT, title TEXT, type TEXT, brief
    JSONB)
JOIN topics ON topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = given.slug
JOIN lanes ON lanes.id = topics.lane_id
JOIN jobs ON jobs.topic_id = topics.id AND jobs.pass = topics.pass
