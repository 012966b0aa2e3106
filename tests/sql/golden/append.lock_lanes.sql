SELECT lanes.id, lanes.name, lanes.state, lanes.next_position
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = any(CAST(%(p_names)s::TEXT[] AS TEXT[]))
ORDER BY lanes.id
FOR NO KEY UPDATE
