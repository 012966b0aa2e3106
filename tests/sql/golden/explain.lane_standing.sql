SELECT jobs.stage, jobs.state, count(*) AS count
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.lane_id = %(p_lane_id)s::BIGINT AND jobs.finished_at IS NULL
GROUP BY jobs.stage, jobs.state
