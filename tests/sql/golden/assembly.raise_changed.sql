UPDATE sites
SET changed=(sites.changed + 1)
WHERE sites.id = any(%(p_site_ids)s)
RETURNING sites.id
