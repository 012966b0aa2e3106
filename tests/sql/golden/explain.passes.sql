SELECT jobs.id, jobs.lane_id, lanes.name AS lane, lanes.state AS lane_state, lanes.on_failed, topics.slug AS topic,
    jobs.position, jobs.pass AS number, jobs.stage, stages.state AS stage_state, jobs.state, jobs.hold, jobs.alone,
    jobs.round, jobs.attempts, jobs.max_attempts, jobs.gate_id, jobs.run_at, jobs.run_until, CASE WHEN (jobs.retry_at >
    statement_timestamp()) THEN jobs.retry_at END AS retry_at, CASE WHEN (jobs.release_at > statement_timestamp()) THEN
    jobs.release_at END AS release_at, CAST(EXTRACT(epoch FROM statement_timestamp() - jobs.run_at) AS FLOAT) AS
    due_seconds, jobs.run_until <= statement_timestamp() AS too_late, jobs.reserved_by, jobs.reserved_at,
    jobs.lease_expires_at, CAST(EXTRACT(epoch FROM jobs.lease_expires_at - statement_timestamp()) AS FLOAT) AS
    lease_left, least(CAST((lanes.overrides -> jobs.stage) ->> 'lease_seconds' AS FLOAT), CAST((workers.stages ->
    'stages') ->> jobs.stage AS FLOAT)) AS lease_seconds, jobs.cancel_requested, jobs.error_class, CASE WHEN (jobs.state
    = 'reserved') THEN jobs.reserved_at WHEN (jobs.state IN ('done', 'skipped')) THEN jobs.finished_at ELSE
    greatest(jobs.created_at, last.ended_at, noted.at) END AS since, last.outcome AS last_outcome, last.error AS
    last_error, noted.verb AS noted_verb, noted.actor AS noted_actor, noted.reason AS noted_reason
FROM jobs
LEFT OUTER JOIN lanes ON lanes.id = jobs.lane_id
LEFT OUTER JOIN topics ON topics.id = jobs.topic_id
LEFT OUTER JOIN stages ON stages.site_id = jobs.site_id AND stages.name = jobs.stage
LEFT OUTER JOIN workers ON workers.name = jobs.reserved_by
LEFT OUTER JOIN LATERAL (
  SELECT attempts.outcome AS outcome, attempts.error_class AS error_class, attempts.error AS error, attempts.ended_at AS
      ended_at, attempts.worker AS worker
  FROM attempts
  WHERE attempts.job_id = jobs.id
  ORDER BY attempts.fence DESC
  LIMIT 1
) AS last ON true
LEFT OUTER JOIN LATERAL (
  SELECT events.verb AS verb, events.actor AS actor, events.reason AS reason, events.at AS at, events.to_state AS
      to_state
  FROM events
  WHERE events.job_id = jobs.id
  ORDER BY events.id DESC
  LIMIT 1
) AS noted ON true
WHERE jobs.id = any(%(p_ids)s)
ORDER BY jobs.id
