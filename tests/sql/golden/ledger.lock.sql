SELECT publications.id
FROM publications
WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR AND
    (publications.topic_id = %(p_topic_id)s::BIGINT OR %(p_topic_id)s::BIGINT IS NULL AND publications.topic_id IS NULL
    AND publications.intent_path = %(p_path)s::VARCHAR)
FOR NO KEY UPDATE
