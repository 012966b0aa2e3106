INSERT INTO publications (site_id, topic_id, target, intent_path, intent_hash, intent_revision, intent_inputs,
    intent_token, intent_fence, intent_at)
SELECT pages_in.site_id, pages_in.topic_id, pages_in.target, pages_in.path, pages_in.hash, pages_in.revision,
    pages_in.inputs, pages_in.token, pages_in.fence, clock_timestamp() AS clock_timestamp_1
FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
    BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
    remote TEXT, seen TEXT)
ORDER BY pages_in.site_id, pages_in.target, pages_in.path
ON CONFLICT DO NOTHING
RETURNING publications.id, publications.site_id, publications.target, publications.topic_id, publications.intent_path
