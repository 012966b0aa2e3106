INSERT INTO publications (site_id, topic_id, target, intent_path, intent_hash)
SELECT %(p_site_id)s::BIGINT AS anon_1, pages_in.topic_id, %(p_target)s::VARCHAR AS anon_2, pages_in.path, pages_in.hash
FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(publication_id BIGINT, topic_id BIGINT, path TEXT,
    hash TEXT, revision BIGINT, inputs TEXT, remote TEXT)
ORDER BY pages_in.path
ON CONFLICT DO NOTHING
