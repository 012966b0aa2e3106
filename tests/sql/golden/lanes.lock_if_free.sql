SELECT lanes.id, lanes.state
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = %(p_name)s::VARCHAR
FOR NO KEY UPDATE SKIP LOCKED
