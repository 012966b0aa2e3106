INSERT INTO publications (site_id, topic_id, target, intent_path, intent_hash)
VALUES (%(p_site_id)s::BIGINT, %(p_topic_id)s::BIGINT, %(p_target)s::VARCHAR, %(p_path)s::VARCHAR, %(p_hash)s::VARCHAR)
ON CONFLICT DO NOTHING
RETURNING publications.id
