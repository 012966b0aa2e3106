SELECT topics.slug
FROM topics
WHERE topics.site_id = %(p_site_id)s::BIGINT
ORDER BY topics.slug
