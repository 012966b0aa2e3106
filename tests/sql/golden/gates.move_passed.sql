WITH moved AS MATERIALIZED (
  SELECT x.id AS id, (
    SELECT j.position
    FROM jobs AS j
    WHERE j.lane_id = x.lane_id AND j.position > x.passed AND j.position < coalesce(
      (
        SELECT b.position
        FROM jobs AS b
        WHERE b.lane_id = x.lane_id AND b.position > x.passed AND b.cleared < x.ordinal AND (b.state NOT IN ('done',
            'skipped'))
        ORDER BY b.position
        LIMIT 1
      ), 9223372036854775807
    )
    ORDER BY j.position DESC
    LIMIT 1
  ) AS position
  FROM gates AS x
  WHERE x.id = any(CAST(%(gates)s AS BIGINT[])) AND x.width = 1
)
UPDATE gates
SET passed=moved.position
FROM moved
WHERE gates.id = moved.id AND gates.passed < moved.position
