SELECT lanes.name, lanes.state, lanes.next_position
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT
ORDER BY lanes.id
