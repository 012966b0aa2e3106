SELECT jobs.id, jobs.topic_id
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL AND jobs.state = any(%(p_sources)s::TEXT[]) AND
    (%(p_lane_id)s::BIGINT IS NULL OR jobs.lane_id = %(p_lane_id)s::BIGINT) AND (%(p_at)s::VARCHAR IS NULL OR jobs.stage
    = %(p_at)s::VARCHAR) AND (%(p_error_class)s::VARCHAR IS NULL OR jobs.error_class = %(p_error_class)s::VARCHAR) AND
    (%(p_states)s::TEXT[] IS NULL OR jobs.state = any(%(p_states)s::TEXT[]))
ORDER BY jobs.id
