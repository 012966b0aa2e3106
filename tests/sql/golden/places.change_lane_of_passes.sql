WITH "new" AS (
  SELECT p.id AS id, topics.lane_id AS lane_id, topics.position AS position, CASE WHEN ((p.state NOT IN ('waiting',
      'pending'))) THEN p.state WHEN (p.hold IS NOT NULL OR lane.state != 'active') THEN 'waiting' ELSE CASE WHEN
      (gate.width IS NOT NULL AND (gate.width > 1 OR topics.position > gate.passed AND p.cleared < gate.ordinal)) THEN
      'waiting' ELSE 'pending' END END AS state, CASE WHEN (p.state IN ('waiting', 'pending')) THEN CASE WHEN
      (gate.width IS NOT NULL AND (gate.width > 1 OR topics.position > gate.passed AND p.cleared < gate.ordinal)) THEN
      gate.id END END AS gate_id
  FROM jobs AS p
  JOIN topics ON topics.id = p.topic_id
  JOIN lanes AS lane ON lane.id = topics.lane_id
  LEFT OUTER JOIN gates AS gate ON gate.lane_id = topics.lane_id AND gate.stage = p.stage
  WHERE p.topic_id = %(p_topic_id)s::BIGINT
)
UPDATE jobs
SET lane_id="new".lane_id, position="new".position, state="new".state, run_at=CASE WHEN ("new".state = 'pending' AND
    jobs.state = 'waiting') THEN greatest(jobs.release_at, jobs.retry_at, clock_timestamp()) ELSE jobs.run_at END,
    gate_id="new".gate_id, slot=NULL
FROM "new"
WHERE jobs.id = "new".id
