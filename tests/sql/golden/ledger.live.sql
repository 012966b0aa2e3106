SELECT publications.topic_id, publications.live_path, publications.live_hash, publications.live_remote,
    publications.live_inputs, publications.first_at, publications.changed_at, publications.live_revision,
    revisions.content_hash
FROM publications
LEFT OUTER JOIN revisions ON revisions.id = publications.live_revision
WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR AND
    publications.live_path IS NOT NULL
ORDER BY publications.id
