UPDATE publications
SET live_path=publications.intent_path, live_hash=publications.intent_hash, live_revision=publications.intent_revision,
    live_remote=pages_in.remote, live_inputs=publications.intent_inputs, live_fence=publications.intent_fence,
    first_at=coalesce(publications.first_at, clock_timestamp()), changed_at=CASE WHEN (publications.live_path =
    publications.intent_path AND CASE WHEN (publications.topic_id IS NULL) THEN publications.live_hash =
    publications.intent_hash ELSE (
  SELECT was.content_hash
  FROM revisions AS was
  WHERE was.id = publications.live_revision
) IS NOT DISTINCT FROM (
  SELECT now.content_hash
  FROM revisions AS now
  WHERE now.id = publications.intent_revision
) END) THEN publications.changed_at ELSE clock_timestamp() END, intent_token=NULL, intent_fence=NULL, intent_at=NULL
FROM json_to_recordset(CAST(%(pages)s::JSON AS JSON)) AS pages_in(job_id BIGINT, token UUID, fence BIGINT, site_id
    BIGINT, target TEXT, publication_id BIGINT, topic_id BIGINT, path TEXT, hash TEXT, revision BIGINT, inputs TEXT,
    remote TEXT, seen TEXT)
WHERE publications.id = pages_in.publication_id AND publications.intent_token = pages_in.token AND
    publications.intent_fence = pages_in.fence AND publications.intent_hash = pages_in.hash
RETURNING publications.id
