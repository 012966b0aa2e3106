SELECT events.verb, events.at, events.actor, events.reason
FROM events
WHERE events.job_id IS NULL AND events.site_id = %(p_site_id)s::BIGINT AND (events.details ->> 'stage') =
    %(p_stage)s::VARCHAR AND events.verb IN ('pause', 'close', 'retire')
ORDER BY events.id DESC
LIMIT 1
