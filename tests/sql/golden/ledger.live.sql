SELECT publications.live_path, publications.live_hash, publications.live_remote, publications.live_inputs,
    publications.live_revision, publications.first_at, publications.changed_at, publications.topic_id, lanes.name AS
    lane, topics.position, topics.type, topics.path, revisions.title, revisions.description
FROM publications
LEFT OUTER JOIN topics ON topics.id = publications.topic_id
LEFT OUTER JOIN lanes ON lanes.id = topics.lane_id
LEFT OUTER JOIN revisions ON revisions.id = publications.live_revision
WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR AND
    publications.live_path IS NOT NULL
ORDER BY topics.lane_id NULLS LAST, topics.position, publications.id
