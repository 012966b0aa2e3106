SELECT topics.path
FROM topics
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.path = any(%(p_paths)s)
