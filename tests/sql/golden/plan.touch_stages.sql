UPDATE stages
SET max_attempts=stages.max_attempts
WHERE stages.site_id = %(p_site_id)s::BIGINT
