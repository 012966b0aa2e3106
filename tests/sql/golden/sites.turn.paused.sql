UPDATE sites
SET state='paused'
WHERE sites.id = %(p_site_id)s::BIGINT AND sites.state = 'active'
RETURNING sites.id
