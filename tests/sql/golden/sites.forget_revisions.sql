UPDATE topics
SET revision_id=%(revision_id)s::BIGINT
WHERE topics.site_id = %(p_site_id)s::BIGINT
