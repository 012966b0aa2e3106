SELECT topics.slug
FROM revisions
JOIN topics ON topics.revision_id = revisions.id
WHERE revisions.site_id = %(p_site_id)s::BIGINT AND revisions.description_key = %(p_key)s::VARCHAR AND topics.id !=
    %(p_topic_id)s::BIGINT
ORDER BY topics.slug
LIMIT %(param_1)s::INTEGER
