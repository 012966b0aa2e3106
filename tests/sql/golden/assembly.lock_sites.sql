SELECT sites.id
FROM sites
WHERE sites.id = any(%(p_site_ids)s)
ORDER BY sites.id
FOR NO KEY UPDATE
