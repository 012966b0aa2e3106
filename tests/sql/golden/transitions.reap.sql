WITH held AS (
  SELECT j.id AS id, j.site_id AS site_id, j.lane_id AS lane_id, j.topic_id AS topic_id, j.position AS position, j.pass
      AS pass, j.stage AS stage, j.round AS round, j.max_rounds AS max_rounds, j.cleared AS cleared, j.state AS state,
      j.hold AS hold, j.approved AS approved, j.priority AS priority, j.release_at AS release_at, j.retry_at AS
      retry_at, j.run_at AS run_at, j.run_until AS run_until, j.gate_id AS gate_id, j.slot AS slot, j.attempts AS
      attempts, j.max_attempts AS max_attempts, j.given_back AS given_back, j.snoozed AS snoozed, j.alone AS alone,
      j.token AS token, j.fence AS fence, j.reserved_by AS reserved_by, j.reserved_at AS reserved_at, j.lease_expires_at
      AS lease_expires_at, j.cancel_requested AS cancel_requested, j.error_class AS error_class, j.created_at AS
      created_at, j.finished_at AS finished_at, acks_in.delay_seconds AS said_delay_seconds, acks_in.to_stage AS
      said_to_stage, acks_in.hold AS said_hold, acks_in.error_class AS said_error_class, acks_in.error AS said_error,
      acks_in.metrics AS said_metrics, acks_in.made_from AS said_made_from
  FROM jobs AS j
  JOIN json_to_recordset(CAST(%(acks)s::JSON AS JSON)) AS acks_in(job_id BIGINT, token UUID, delay_seconds FLOAT,
      to_stage TEXT, hold TEXT, error_class TEXT, error TEXT, metrics JSONB, made_from TEXT) ON j.id = acks_in.job_id
      AND j.token = acks_in.token
  WHERE (j.gate_id IS NULL OR j.gate_id = any(CAST(%(gates)s AS BIGINT[]))) AND j.lease_expires_at <= clock_timestamp()
  ORDER BY j.id
  FOR NO KEY UPDATE OF j SKIP LOCKED
), decided AS (
  SELECT held.id AS id, held.site_id AS site_id, held.lane_id AS lane_id, held.topic_id AS topic_id, held.position AS
      position, held.pass AS pass, held.stage AS stage, held.round AS round, held.max_rounds AS max_rounds, held.cleared
      AS cleared, held.state AS state, held.hold AS hold, held.approved AS approved, held.priority AS priority,
      held.release_at AS release_at, held.retry_at AS retry_at, held.run_at AS run_at, held.run_until AS run_until,
      held.gate_id AS gate_id, held.slot AS slot, held.attempts AS attempts, held.max_attempts AS max_attempts,
      held.given_back AS given_back, held.snoozed AS snoozed, held.alone AS alone, held.token AS token, held.fence AS
      fence, held.reserved_by AS reserved_by, held.reserved_at AS reserved_at, held.lease_expires_at AS
      lease_expires_at, held.cancel_requested AS cancel_requested, held.error_class AS error_class, held.created_at AS
      created_at, held.finished_at AS finished_at, held.said_delay_seconds AS said_delay_seconds, held.said_to_stage AS
      said_to_stage, held.said_hold AS said_hold, held.said_error_class AS said_error_class, held.said_error AS
      said_error, held.said_metrics AS said_metrics, held.said_made_from AS said_made_from, 'expired' AS outcome, true
      AS charged, CAST(held.attempts >= least(2, held.max_attempts - 1) AS BOOLEAN) AS new_alone, CAST(CASE WHEN
      (held.attempts - 0 >= held.max_attempts) THEN 'repair' ELSE CASE WHEN (held.gate_id IS NULL OR (EXISTS (
    SELECT *
    FROM gates AS gate
    WHERE gate.id = held.gate_id AND gate.width = 1 AND NOT (held.position > gate.passed AND held.cleared <
        gate.ordinal)
  )) OR (EXISTS (
    SELECT *
    FROM gates AS gate
    WHERE gate.id = held.gate_id AND CASE WHEN (gate.width = 1) THEN held.position = (
      SELECT b.position
      FROM jobs AS b
      WHERE b.lane_id = gate.lane_id AND b.position > gate.passed AND b.cleared < gate.ordinal AND (b.state NOT IN
          ('done', 'skipped'))
      ORDER BY b.position
      LIMIT 1
    ) ELSE (
      SELECT count(*) AS count_1
      FROM jobs AS u
      WHERE u.gate_id = gate.id AND u.slot IS NOT NULL
    ) <= gate.width END
  ))) THEN 'pending' ELSE 'waiting' END END AS TEXT) AS new_state, CAST(held.attempts - 0 AS INTEGER) AS new_attempts,
      CAST(CASE WHEN (held.attempts - 0 >= held.max_attempts) THEN NULL ELSE CASE WHEN (EXISTS (
    SELECT *
    FROM gates AS gate
    WHERE gate.id = held.gate_id AND gate.width = 1 AND NOT (held.position > gate.passed AND held.cleared <
        gate.ordinal)
  )) THEN NULL ELSE held.gate_id END END AS BIGINT) AS new_gate_id, CAST(CASE WHEN (held.attempts - 0 >=
      held.max_attempts) THEN NULL ELSE CASE WHEN (EXISTS (
    SELECT *
    FROM gates AS gate
    WHERE gate.id = held.gate_id AND gate.width = 1 AND NOT (held.position > gate.passed AND held.cleared <
        gate.ordinal)
  )) THEN NULL WHEN (EXISTS (
    SELECT *
    FROM gates AS gate
    WHERE gate.id = held.gate_id AND CASE WHEN (gate.width = 1) THEN held.position = (
      SELECT b.position
      FROM jobs AS b
      WHERE b.lane_id = gate.lane_id AND b.position > gate.passed AND b.cleared < gate.ordinal AND (b.state NOT IN
          ('done', 'skipped'))
      ORDER BY b.position
      LIMIT 1
    ) ELSE (
      SELECT count(*) AS count_1
      FROM jobs AS u
      WHERE u.gate_id = gate.id AND u.slot IS NOT NULL
    ) <= gate.width END
  )) THEN held.slot END END AS INTEGER) AS new_slot, CAST(greatest(held.release_at, held.retry_at, clock_timestamp()) AS
      TIMESTAMP WITH TIME ZONE) AS new_run_at, CAST(CASE WHEN (held.attempts - 0 >= held.max_attempts) THEN
      held.said_error_class ELSE held.error_class END AS TEXT) AS new_error_class
  FROM held
  WHERE true
), written AS (
  UPDATE jobs
  SET state=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN 'cancelled' ELSE decided.new_state
      END, run_at=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN jobs.run_at ELSE
      decided.new_run_at END, gate_id=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN NULL
      ELSE decided.new_gate_id END, slot=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN NULL
      ELSE decided.new_slot END, attempts=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN
      jobs.attempts ELSE decided.new_attempts END, alone=CASE WHEN (decided.cancel_requested AND decided.new_state !=
      'done') THEN jobs.alone ELSE decided.new_alone END, token=NULL, fence=NULL, reserved_by=NULL, reserved_at=NULL,
      lease_expires_at=NULL, cancel_requested=CASE WHEN (decided.cancel_requested AND decided.new_state != 'done') THEN
      false ELSE jobs.cancel_requested END, error_class=CASE WHEN (decided.cancel_requested AND decided.new_state !=
      'done') THEN jobs.error_class ELSE decided.new_error_class END
  FROM decided
  WHERE jobs.id = decided.id AND jobs.token = decided.token
  RETURNING jobs.state AS new_state, jobs.stage AS new_stage, decided.site_id, decided.priority, decided.topic_id,
      decided.said_made_from AS made_from, decided.fence AS fence, decided.id AS job_id, decided.stage AS stage,
      decided.round AS round, decided.token AS token, decided.reserved_by AS worker, decided.reserved_at AS reserved_at,
      greatest(clock_timestamp(), decided.reserved_at) AS ended_at, CASE WHEN (decided.cancel_requested AND
      decided.new_state != 'done') THEN 'cancelled' ELSE decided.outcome END AS outcome, decided.cancel_requested AND
      decided.new_state != 'done' OR decided.charged AS charged, decided.said_error_class AS error_class,
      decided.said_error AS error, decided.said_metrics AS metrics
), logged AS (
  INSERT INTO attempts (fence, job_id, stage, round, token, worker, reserved_at, ended_at, outcome, charged,
      error_class, error, metrics)
  SELECT written.fence AS fence, written.job_id AS job_id, written.stage AS stage, written.round AS round, written.token
      AS token, written.worker AS worker, written.reserved_at AS reserved_at, written.ended_at AS ended_at,
      written.outcome AS outcome, written.charged AS charged, written.error_class AS error_class, written.error AS
      error, written.metrics AS metrics
  FROM written
)
SELECT written.job_id AS id, written.new_state AS state, written.new_stage AS stage, written.site_id, written.priority,
    written.fence, written.topic_id, written.stage AS left_stage, written.outcome
FROM written
ORDER BY written.job_id
