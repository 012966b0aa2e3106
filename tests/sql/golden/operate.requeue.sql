WITH chosen AS (
  SELECT j.id AS id, j.site_id AS site_id, j.lane_id AS lane_id, j.topic_id AS topic_id, j.position AS position, j.pass
      AS pass, j.stage AS stage, j.round AS round, j.max_rounds AS max_rounds, j.cleared AS cleared, j.state AS state,
      j.hold AS hold, j.approved AS approved, j.priority AS priority, j.release_at AS release_at, j.retry_at AS
      retry_at, j.run_at AS run_at, j.run_until AS run_until, j.gate_id AS gate_id, j.slot AS slot, j.attempts AS
      attempts, j.max_attempts AS max_attempts, j.given_back AS given_back, j.snoozed AS snoozed, j.alone AS alone,
      j.token AS token, j.fence AS fence, j.reserved_by AS reserved_by, j.reserved_at AS reserved_at, j.lease_expires_at
      AS lease_expires_at, j.cancel_requested AS cancel_requested, j.error_class AS error_class, j.created_at AS
      created_at, j.finished_at AS finished_at
  FROM jobs AS j
  WHERE j.id = any(%(p_ids)s) AND j.state IN ('cancelled', 'failed', 'repair') AND (%(p_lane_id)s::BIGINT IS NULL OR
      j.lane_id = %(p_lane_id)s::BIGINT) AND (%(p_at)s::VARCHAR IS NULL OR j.stage = %(p_at)s::VARCHAR) AND
      (%(p_error_class)s::VARCHAR IS NULL OR j.error_class = %(p_error_class)s::VARCHAR) AND (%(p_states)s::TEXT[] IS
      NULL OR j.state = any(%(p_states)s::TEXT[]))
  ORDER BY j.id
  FOR NO KEY UPDATE OF j
), decided AS (
  SELECT chosen.id AS id, chosen.site_id AS site_id, chosen.lane_id AS lane_id, chosen.topic_id AS topic_id,
      chosen.position AS position, chosen.pass AS pass, chosen.stage AS stage, chosen.round AS round, chosen.max_rounds
      AS max_rounds, chosen.cleared AS cleared, chosen.state AS state, chosen.hold AS hold, chosen.approved AS approved,
      chosen.priority AS priority, chosen.release_at AS release_at, chosen.retry_at AS retry_at, chosen.run_at AS
      run_at, chosen.run_until AS run_until, chosen.gate_id AS gate_id, chosen.slot AS slot, chosen.attempts AS
      attempts, chosen.max_attempts AS max_attempts, chosen.given_back AS given_back, chosen.snoozed AS snoozed,
      chosen.alone AS alone, chosen.token AS token, chosen.fence AS fence, chosen.reserved_by AS reserved_by,
      chosen.reserved_at AS reserved_at, chosen.lease_expires_at AS lease_expires_at, chosen.cancel_requested AS
      cancel_requested, chosen.error_class AS error_class, chosen.created_at AS created_at, chosen.finished_at AS
      finished_at, CAST(CASE WHEN (gate.width IS NOT NULL AND (gate.width > 1 OR chosen.position > gate.passed AND
      chosen.cleared < gate.ordinal)) THEN 'waiting' ELSE 'pending' END AS TEXT) AS new_state, CAST(CASE WHEN
      (chosen.stage = 'assemble') THEN chosen.stage ELSE target.name END AS TEXT) AS new_stage, CAST(CASE WHEN
      (%(p_stage)s::VARCHAR IS NOT NULL AND chosen.stage != 'assemble' OR chosen.stage != 'assemble' AND target.name !=
      chosen.stage) THEN NULL ELSE chosen.approved END AS TEXT) AS new_approved, CAST(CASE WHEN (gate.width IS NOT NULL
      AND (gate.width > 1 OR chosen.position > gate.passed AND chosen.cleared < gate.ordinal)) THEN gate.id END AS
      BIGINT) AS new_gate_id, CAST(NULL AS INTEGER) AS new_slot, CAST(CASE WHEN (%(p_stage)s::VARCHAR IS NOT NULL AND
      chosen.stage != 'assemble') THEN chosen.round + 1 ELSE chosen.round END AS SMALLINT) AS new_round, CAST(CASE WHEN
      (%(p_stage)s::VARCHAR IS NOT NULL AND chosen.stage != 'assemble') THEN CASE WHEN (%(p_stage)s::VARCHAR IS NOT NULL
      AND chosen.stage != 'assemble') THEN chosen.round + 1 ELSE chosen.round END + 3 ELSE chosen.max_rounds END AS
      SMALLINT) AS new_max_rounds, CAST(CASE WHEN (%(p_stage)s::VARCHAR IS NOT NULL AND chosen.stage != 'assemble' OR
      chosen.stage != 'assemble' AND target.name != chosen.stage) THEN 0 ELSE chosen.attempts END AS INTEGER) AS
      new_attempts, CAST(CASE WHEN (%(p_stage)s::VARCHAR IS NOT NULL AND chosen.stage != 'assemble' OR chosen.stage !=
      'assemble' AND target.name != chosen.stage) THEN %(p_grant)s::INTEGER ELSE chosen.attempts + %(p_grant)s::INTEGER
      END AS INTEGER) AS new_max_attempts, CAST(NULL AS TIMESTAMP WITH TIME ZONE) AS new_retry_at,
      CAST(greatest(chosen.release_at, clock_timestamp()) AS TIMESTAMP WITH TIME ZONE) AS new_run_at, CAST(false AS
      BOOLEAN) AS new_cancel_requested, CAST(false AS BOOLEAN) AS new_alone, CAST(NULL AS TEXT) AS new_error_class
  FROM chosen
  LEFT OUTER JOIN stages AS target ON target.site_id = chosen.site_id AND (target.name = %(p_stage)s::VARCHAR OR
      %(p_stage)s::VARCHAR IS NULL AND target.ordinal = (
    SELECT min(later.ordinal) AS min_1
    FROM stages AS later
    WHERE later.site_id = chosen.site_id AND later.ordinal >= (
      SELECT stood.ordinal
      FROM stages AS stood
      WHERE stood.site_id = chosen.site_id AND stood.name = chosen.stage
    ) AND later.state != 'retired'
  ))
  LEFT OUTER JOIN gates AS gate ON gate.lane_id = chosen.lane_id AND gate.stage = target.name
  WHERE (gate.id IS NULL OR gate.id = any(CAST(%(gates)s AS BIGINT[]))) AND (chosen.stage = 'assemble' OR target.state
      != 'retired') AND (%(p_stage)s::VARCHAR IS NOT NULL OR chosen.error_class IS DISTINCT FROM
      %(error_class_1)s::VARCHAR)
), written AS (
  UPDATE jobs
  SET stage=decided.new_stage, round=decided.new_round, max_rounds=decided.new_max_rounds, state=decided.new_state,
      approved=decided.new_approved, retry_at=decided.new_retry_at, run_at=decided.new_run_at,
      gate_id=decided.new_gate_id, slot=decided.new_slot, attempts=decided.new_attempts,
      max_attempts=decided.new_max_attempts, alone=decided.new_alone, cancel_requested=decided.new_cancel_requested,
      error_class=decided.new_error_class
  FROM decided
  WHERE jobs.id = decided.id AND jobs.state = decided.state
  RETURNING jobs.id, jobs.state, jobs.stage
), noted AS (
  INSERT INTO events (site_id, lane_id, job_id, verb, from_state, to_state, actor, reason)
  SELECT decided.site_id AS site_id, decided.lane_id AS lane_id, decided.id AS id, 'requeue', decided.state AS state,
      written.state AS state_1, %(p_actor)s::VARCHAR AS anon_1, %(p_reason)s::VARCHAR AS anon_2
  FROM decided
  JOIN written ON written.id = decided.id
  RETURNING events.job_id
)
SELECT decided.id, decided.state AS from_state, written.state AS to_state, written.stage, decided.site_id
FROM decided
JOIN written ON written.id = decided.id
JOIN noted ON noted.job_id = decided.id
ORDER BY decided.id
