SELECT lanes.id, lanes.name, lanes.state, lanes.next_position
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = any(%(p_names)s)
ORDER BY lanes.id
FOR NO KEY UPDATE
