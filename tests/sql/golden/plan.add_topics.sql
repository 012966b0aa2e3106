INSERT INTO topics (site_id, lane_id, position, slug, path, title, type, brief, input_hash)
SELECT %(p_site_id)s::BIGINT AS anon_1, lanes.id, (lanes.next_position + row_number() OVER (PARTITION BY lanes.id ORDER
    BY topics_in.n)) - 1 AS position, topics_in.slug, topics_in.path, topics_in.title, topics_in.type, topics_in.brief,
    topics_in.input_hash
FROM json_to_recordset(CAST(%(topics)s::JSON AS JSON)) AS topics_in(n INTEGER, lane TEXT, slug TEXT, path TEXT, title
    TEXT, type TEXT, brief JSONB, input_hash TEXT)
JOIN lanes ON lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = topics_in.lane
ORDER BY topics_in.n
RETURNING topics.id, topics.slug
