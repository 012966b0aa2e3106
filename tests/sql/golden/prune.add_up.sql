UPDATE events
SET details=%(p_details)s::JSONB
WHERE events.id = %(p_event_id)s::BIGINT
