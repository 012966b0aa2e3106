SELECT topics.slug, topics.path
FROM topics
WHERE topics.site_id = %(p_site_id)s::BIGINT AND (topics.slug = any(CAST(%(p_slugs)s::TEXT[] AS TEXT[])) OR topics.path
    = any(CAST(%(p_paths)s::TEXT[] AS TEXT[])))
