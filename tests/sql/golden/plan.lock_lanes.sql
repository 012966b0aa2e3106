SELECT lanes.id, lanes.name, lanes.state
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT
ORDER BY lanes.id
FOR NO KEY UPDATE
