SELECT events.verb, events.at, events.actor, events.reason
FROM events
WHERE events.job_id IS NULL AND events.lane_id = %(p_lane_id)s::BIGINT AND events.verb IN ('pause', 'close')
ORDER BY events.id DESC
LIMIT 1
