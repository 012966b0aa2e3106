SELECT count(*) AS unfinished, count(*) FILTER (WHERE jobs.state = 'reserved' AND jobs.lease_expires_at >=
    statement_timestamp()) AS running, count(*) FILTER (WHERE jobs.state = 'reserved' AND jobs.lease_expires_at <
    statement_timestamp() - 15 * interval '1 second') AS "over", CAST(EXTRACT(epoch FROM max(statement_timestamp() -
    jobs.lease_expires_at) FILTER (WHERE jobs.state = 'reserved' AND jobs.lease_expires_at < statement_timestamp() - 15
    * interval '1 second')) AS FLOAT) AS over_seconds, count(*) FILTER (WHERE jobs.state = 'pending' AND jobs.run_at <=
    statement_timestamp() AND coalesce(
  (
    SELECT lanes.state
    FROM lanes
    WHERE lanes.id = jobs.lane_id
  ), 'active'
) = 'active' AND coalesce(
  (
    SELECT stages.state
    FROM stages
    WHERE stages.site_id = jobs.site_id AND stages.name = jobs.stage
  ), 'active'
) != 'paused') AS due, CAST(EXTRACT(epoch FROM max(statement_timestamp() - jobs.run_at) FILTER (WHERE jobs.state =
    'pending' AND jobs.run_at <= statement_timestamp() AND coalesce(
  (
    SELECT lanes.state
    FROM lanes
    WHERE lanes.id = jobs.lane_id
  ), 'active'
) = 'active' AND coalesce(
  (
    SELECT stages.state
    FROM stages
    WHERE stages.site_id = jobs.site_id AND stages.name = jobs.stage
  ), 'active'
) != 'paused')) AS FLOAT) AS due_seconds, count(*) FILTER (WHERE jobs.state = 'pending' AND jobs.run_at >
    statement_timestamp()) AS later, CAST(EXTRACT(epoch FROM min(jobs.run_at - statement_timestamp()) FILTER (WHERE
    jobs.state = 'pending' AND jobs.run_at > statement_timestamp())) AS FLOAT) AS next_seconds, count(*) FILTER (WHERE
    jobs.state = 'waiting') AS waiting, count(*) FILTER (WHERE jobs.hold IS NOT NULL) AS held, count(*) FILTER (WHERE
    jobs.state IN ('cancelled', 'failed', 'repair')) AS halted
FROM jobs
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL
