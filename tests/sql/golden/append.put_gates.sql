INSERT INTO gates (lane_id, stage, ordinal, width)
SELECT lanes.id, stages.name, stages.ordinal, stages.width
FROM lanes
JOIN stages ON stages.site_id = lanes.site_id
WHERE lanes.id = any(CAST(%(p_lanes)s::BIGINT[] AS BIGINT[])) AND stages.width IS NOT NULL
ORDER BY lanes.id, stages.ordinal
