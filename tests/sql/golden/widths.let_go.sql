UPDATE jobs
SET gate_id=NULL, slot=NULL
WHERE jobs.gate_id = any(CAST(%(gates)s AS BIGINT[])) AND jobs.state = 'reserved' AND (EXISTS (
  SELECT *
  FROM gates
  WHERE gates.id = jobs.gate_id AND gates.width IS NULL
))
