SELECT found.id, found.name, found.state, found.head, found.kind
FROM (
  SELECT lanes.id AS id, lanes.name AS name, lanes.state AS state, head.id AS head, CASE WHEN (lanes.state != 'active')
      THEN lanes.state WHEN (head.state IN ('cancelled', 'failed', 'repair')) THEN head.state WHEN (head.hold IS NOT
      NULL) THEN 'held' WHEN (head.state = 'reserved' AND head.lease_expires_at <= statement_timestamp()) THEN 'lost'
      WHEN (head.state = 'pending' AND head.run_at > statement_timestamp()) THEN 'later' WHEN (stages.state = 'paused'
      AND head.state != 'reserved') THEN 'shut' END AS kind
  FROM lanes
  LEFT OUTER JOIN LATERAL (
    SELECT gates.id AS id, gates.lane_id AS lane_id, gates.stage AS stage, gates.ordinal AS ordinal, gates.width AS
        width, gates.passed AS passed, gates.strict_since AS strict_since
    FROM gates
    WHERE gates.lane_id = lanes.id AND gates.width = 1
    ORDER BY gates.ordinal DESC
    LIMIT 1
  ) AS last_gate ON true
  LEFT OUTER JOIN jobs AS head ON head.id = (
    SELECT h.id
    FROM jobs AS h
    WHERE h.lane_id = last_gate.lane_id AND h.position = (
      SELECT b.position
      FROM jobs AS b
      WHERE b.lane_id = last_gate.lane_id AND b.position > last_gate.passed AND b.cleared < last_gate.ordinal AND
          (b.state NOT IN ('done', 'skipped'))
      ORDER BY b.position
      LIMIT 1
    ) AND h.cleared < last_gate.ordinal AND h.finished_at IS NULL
    LIMIT 1
  )
  LEFT OUTER JOIN stages ON stages.site_id = head.site_id AND stages.name = head.stage
  WHERE lanes.site_id = %(p_site_id)s::BIGINT
) AS found
WHERE found.kind IS NOT NULL
ORDER BY found.id
