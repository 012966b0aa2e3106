SELECT x.id
FROM gates AS x
JOIN lanes ON lanes.id = x.lane_id AND lanes.state = 'active'
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name > %(p_after)s::VARCHAR AND (%(p_end)s::VARCHAR IS NULL OR
    lanes.name <= %(p_end)s::VARCHAR) AND (
  SELECT count(*) AS count_1
  FROM jobs AS u
  WHERE u.gate_id = x.id AND u.slot IS NOT NULL
) < x.width AND (EXISTS (
  SELECT *
  FROM jobs AS w
  WHERE w.gate_id = x.id AND w.state = 'waiting' AND w.hold IS NULL AND (x.width > 1 OR w.position = (
    SELECT b.position
    FROM jobs AS b
    WHERE b.lane_id = x.lane_id AND b.position > x.passed AND b.cleared < x.ordinal AND (b.state NOT IN ('done',
        'skipped'))
    ORDER BY b.position
    LIMIT 1
  ))
))
ORDER BY x.id
