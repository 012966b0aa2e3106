INSERT INTO events (site_id, verb, actor, reason, details)
VALUES (%(p_site_id)s::BIGINT, 'prune', %(p_actor)s::VARCHAR, %(p_reason)s::VARCHAR, %(p_details)s::JSONB)
RETURNING events.id
