SELECT gates.id, gates.stage, gates.width, gates.passed, (
  SELECT count(*) AS count_1
  FROM jobs AS u
  WHERE u.gate_id = gates.id AND u.slot IS NOT NULL
) AS used, CASE WHEN (gates.width = 1) THEN (
  SELECT h.id
  FROM jobs AS h
  WHERE h.lane_id = gates.lane_id AND h.position = (
    SELECT b.position
    FROM jobs AS b
    WHERE b.lane_id = gates.lane_id AND b.position > gates.passed AND b.cleared < gates.ordinal AND (b.state NOT IN
        ('done', 'skipped'))
    ORDER BY b.position
    LIMIT 1
  ) AND h.cleared < gates.ordinal AND h.finished_at IS NULL
  LIMIT 1
) END AS head
FROM gates
WHERE gates.id = %(p_gate_id)s::BIGINT
