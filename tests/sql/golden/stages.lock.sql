SELECT stages.name
FROM stages
WHERE stages.site_id = %(p_site_id)s::BIGINT
ORDER BY stages.ordinal
FOR NO KEY UPDATE
