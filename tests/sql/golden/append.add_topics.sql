INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
SELECT %(p_site_id)s::BIGINT AS anon_1, given.lane_id, given.position, given.slug, given.path, given.title, given.type,
    given.brief, given.input_hash
FROM json_to_recordset(CAST(%(p_topics)s::VARCHAR AS JSON)) AS given(lane_id BIGINT, position BIGINT, slug TEXT, path
    TEXT, title TEXT, type TEXT, brief JSONB, input_hash TEXT)
ON CONFLICT (site_id, slug) DO NOTHING
