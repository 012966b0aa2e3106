UPDATE sites
SET state='active'
WHERE sites.id = %(p_site_id)s::BIGINT AND sites.state = 'paused'
RETURNING sites.id
