SELECT events.verb, events.at, events.actor, events.reason
FROM events
WHERE events.job_id IS NULL AND events.site_id = %(p_site_id)s::BIGINT AND events.lane_id IS NULL AND events.verb IN
    ('pause', 'close') AND NOT (events.details ? 'stage')
ORDER BY events.id DESC
LIMIT 1
