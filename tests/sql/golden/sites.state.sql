SELECT sites.slug, sites.state
FROM sites
WHERE sites.id = %(p_site_id)s::BIGINT
