SELECT publications.target, publications.live_path, publications.live_hash, publications.first_at,
    publications.changed_at
FROM publications
WHERE publications.topic_id = %(p_topic_id)s::BIGINT AND publications.live_path IS NOT NULL
