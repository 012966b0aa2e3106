UPDATE publications
SET intent_path=%(p_path)s::VARCHAR, intent_hash=%(p_hash)s::VARCHAR, intent_revision=%(p_revision)s::BIGINT,
    intent_inputs=%(p_inputs)s::VARCHAR, intent_token=%(p_token)s::UUID, intent_fence=%(p_fence)s::BIGINT,
    intent_at=clock_timestamp()
WHERE publications.id = %(p_publication_id)s::BIGINT AND (publications.intent_token IS NULL OR publications.intent_token
    = %(p_token)s::UUID AND publications.intent_fence = %(p_fence)s::BIGINT OR NOT (EXISTS (
  SELECT *
  FROM jobs AS other
  WHERE other.state = 'reserved' AND other.token = publications.intent_token AND other.fence = publications.intent_fence
)))
RETURNING publications.id, publications.live_hash
