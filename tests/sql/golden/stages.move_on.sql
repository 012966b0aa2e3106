WITH job AS (
  SELECT j.id AS id, j.site_id AS site_id, j.lane_id AS lane_id, j.topic_id AS topic_id, j.position AS position, j.pass
      AS pass, j.stage AS stage, j.round AS round, j.max_rounds AS max_rounds, j.cleared AS cleared, j.state AS state,
      j.hold AS hold, j.approved AS approved, j.priority AS priority, j.release_at AS release_at, j.retry_at AS
      retry_at, j.run_at AS run_at, j.run_until AS run_until, j.gate_id AS gate_id, j.slot AS slot, j.attempts AS
      attempts, j.max_attempts AS max_attempts, j.given_back AS given_back, j.snoozed AS snoozed, j.alone AS alone,
      j.token AS token, j.fence AS fence, j.reserved_by AS reserved_by, j.reserved_at AS reserved_at, j.lease_expires_at
      AS lease_expires_at, j.cancel_requested AS cancel_requested, j.error_class AS error_class, j.created_at AS
      created_at, j.finished_at AS finished_at
  FROM jobs AS j
  WHERE j.id = any(%(p_ids)s) AND j.state IN ('pending', 'waiting')
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
), decided AS (
  SELECT job.id AS id, job.site_id AS site_id, job.lane_id AS lane_id, job.topic_id AS topic_id, job.position AS
      position, job.pass AS pass, job.stage AS stage, job.round AS round, job.max_rounds AS max_rounds, job.cleared AS
      cleared, job.state AS state, job.hold AS hold, job.approved AS approved, job.priority AS priority, job.release_at
      AS release_at, job.retry_at AS retry_at, job.run_at AS run_at, job.run_until AS run_until, job.gate_id AS gate_id,
      job.slot AS slot, job.attempts AS attempts, job.max_attempts AS max_attempts, job.given_back AS given_back,
      job.snoozed AS snoozed, job.alone AS alone, job.token AS token, job.fence AS fence, job.reserved_by AS
      reserved_by, job.reserved_at AS reserved_at, job.lease_expires_at AS lease_expires_at, job.cancel_requested AS
      cancel_requested, job.error_class AS error_class, job.created_at AS created_at, job.finished_at AS finished_at,
      CAST(following.name AS TEXT) AS new_stage, CAST(CASE WHEN (job.hold IS NOT NULL) THEN 'waiting' ELSE CASE WHEN
      (gate.width IS NOT NULL AND (gate.width > 1 OR job.position > gate.passed AND job.cleared < gate.ordinal)) THEN
      'waiting' ELSE 'pending' END END AS TEXT) AS new_state, CAST(CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1
      OR job.position > gate.passed AND job.cleared < gate.ordinal)) THEN gate.id END AS BIGINT) AS new_gate_id,
      CAST(NULL AS INTEGER) AS new_slot, CAST(NULL AS TEXT) AS new_approved, CAST(0 AS INTEGER) AS new_attempts,
      CAST(false AS BOOLEAN) AS new_alone, CAST(coalesce(
    (
      SELECT CAST((lane.overrides -> following.name) ->> 'max_attempts' AS INTEGER) AS anon_1
      FROM lanes AS lane
      WHERE lane.id = job.lane_id
    ), following.max_attempts
  ) AS INTEGER) AS new_max_attempts, CAST(0 AS INTEGER) AS new_given_back, CAST(0 AS INTEGER) AS new_snoozed, CAST(NULL
      AS TIMESTAMP WITH TIME ZONE) AS new_retry_at, CAST(greatest(job.release_at, clock_timestamp()) AS TIMESTAMP WITH
      TIME ZONE) AS new_run_at, CAST(NULL AS TEXT) AS new_error_class
  FROM job
  JOIN stages AS here ON here.site_id = job.site_id AND here.name = job.stage AND here.state = 'retired'
  JOIN stages AS following ON following.site_id = job.site_id AND following.ordinal = (
    SELECT min(later.ordinal) AS min_1
    FROM stages AS later
    WHERE later.site_id = job.site_id AND later.ordinal > here.ordinal AND later.state != 'retired'
  )
  LEFT OUTER JOIN gates AS gate ON gate.lane_id = job.lane_id AND gate.stage = following.name
  WHERE (gate.id IS NULL OR gate.id = any(CAST(%(gates)s AS BIGINT[]))) AND (job.gate_id IS NULL OR job.gate_id =
      any(CAST(%(gates)s AS BIGINT[])))
), written AS (
  UPDATE jobs
  SET stage=decided.new_stage, state=decided.new_state, approved=decided.new_approved, retry_at=decided.new_retry_at,
      run_at=decided.new_run_at, gate_id=decided.new_gate_id, slot=decided.new_slot, attempts=decided.new_attempts,
      max_attempts=decided.new_max_attempts, given_back=decided.new_given_back, snoozed=decided.new_snoozed,
      alone=decided.new_alone, error_class=decided.new_error_class
  FROM decided
  WHERE jobs.id = decided.id AND jobs.state = decided.state
  RETURNING jobs.id, jobs.state, jobs.stage
), noted AS (
  INSERT INTO events (site_id, lane_id, job_id, verb, from_state, to_state, actor, reason)
  SELECT decided.site_id AS site_id, decided.lane_id AS lane_id, decided.id AS id, 'retire', decided.state AS state,
      written.state AS state_1, %(p_actor)s::VARCHAR AS anon_2, concat(decided.stage, ' was retired; on to ',
      written.stage) AS concat_1
  FROM decided
  JOIN written ON written.id = decided.id
  RETURNING events.job_id
)
SELECT decided.id, decided.site_id, written.stage, decided.priority, written.state
FROM decided
JOIN written ON written.id = decided.id
JOIN noted ON noted.job_id = decided.id
ORDER BY decided.id
