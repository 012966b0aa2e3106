SELECT sites.id
FROM sites
WHERE sites.id = %(p_site_id)s::BIGINT FOR KEY SHARE
