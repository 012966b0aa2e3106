SELECT count(*) AS healed, max(events.at) AS last
FROM events
WHERE events.site_id = %(p_site_id)s::BIGINT AND events.verb = 'promote' AND events.actor = %(p_actor)s::VARCHAR AND
    events.at > statement_timestamp() - 604800 * interval '1 second'
