SELECT stages.name, stages.ordinal, stages.state, stages.width, stages.max_attempts
FROM stages
WHERE stages.site_id = %(p_site_id)s::BIGINT
ORDER BY stages.ordinal
