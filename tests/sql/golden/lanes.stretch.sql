SELECT lanes.name
FROM lanes
WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name > %(p_after)s::VARCHAR
ORDER BY lanes.name
LIMIT 1 OFFSET %(p_length)s::INTEGER
