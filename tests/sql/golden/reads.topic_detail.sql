SELECT topics.id, topics.slug, topics.title, topics.type, lanes.name AS lane, topics.position, topics.path,
    topics.brief, topics.pass AS number, topics.revisions, revisions.title AS draft_title, revisions.description,
    revisions.body, revisions.content_hash
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
LEFT OUTER JOIN revisions ON revisions.id = topics.revision_id
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = %(p_slug)s::VARCHAR
