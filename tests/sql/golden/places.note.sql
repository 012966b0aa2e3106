INSERT INTO events (site_id, lane_id, job_id, verb, from_state, to_state, actor, reason, details)
SELECT topics.site_id, topics.lane_id, jobs.id, 'move', %(p_before)s::VARCHAR AS anon_1, jobs.state,
    %(p_actor)s::VARCHAR AS anon_2, %(p_reason)s::VARCHAR AS anon_3, %(p_details)s::JSONB AS anon_4
FROM topics
JOIN jobs ON jobs.topic_id = topics.id AND jobs.finished_at IS NULL
WHERE topics.id = %(p_topic_id)s::BIGINT
RETURNING events.id
