UPDATE publications
SET intent_path=pages_in.path, intent_hash=pages_in.hash, intent_revision=pages_in.revision,
    intent_inputs=pages_in.inputs, intent_token=pages_in.token, intent_fence=pages_in.fence, intent_at=clock_timestamp()
FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
    BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
    remote TEXT, seen TEXT)
WHERE publications.id = pages_in.publication_id AND (publications.intent_token IS NULL OR publications.intent_token =
    pages_in.token AND publications.intent_fence = pages_in.fence OR NOT (EXISTS (
  SELECT *
  FROM jobs AS other
  WHERE other.state = 'reserved' AND other.token = publications.intent_token AND other.fence = publications.intent_fence
))) AND (pages_in.seen IS NULL OR publications.live_hash = pages_in.seen)
RETURNING publications.id
