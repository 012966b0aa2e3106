SELECT sites.id
FROM sites
WHERE sites.id = any(%(p_site_ids)s) AND sites.changed > sites.built
ORDER BY sites.id
FOR NO KEY UPDATE
