SELECT topics.slug, topics.id, revisions.content_hash
FROM topics
LEFT OUTER JOIN revisions ON revisions.id = topics.revision_id
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = any(%(p_slugs)s::TEXT[])
