SELECT lanes.id, lanes.name, lanes.state, lanes.on_failed
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = %(p_name)s::VARCHAR
