INSERT INTO gates (lane_id, stage, ordinal, width)
SELECT lanes.id, stages.name, stages.ordinal, CASE WHEN ((lanes.overrides -> stages.name) ? 'width') THEN
    CAST((lanes.overrides -> stages.name) ->> 'width' AS INTEGER) ELSE stages.width END AS anon_1
FROM lanes
JOIN stages ON stages.site_id = lanes.site_id
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND CASE WHEN ((lanes.overrides -> stages.name) ? 'width') THEN
    CAST((lanes.overrides -> stages.name) ->> 'width' AS INTEGER) ELSE stages.width END IS NOT NULL AND NOT (EXISTS (
  SELECT *
  FROM gates
  WHERE gates.lane_id = lanes.id AND gates.stage = stages.name
))
ORDER BY lanes.id, stages.ordinal
ON CONFLICT DO NOTHING
RETURNING gates.id
