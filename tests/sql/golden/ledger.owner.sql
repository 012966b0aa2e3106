SELECT topics.slug
FROM publications
LEFT OUTER JOIN topics ON topics.id = publications.topic_id
WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.target = %(p_target)s::VARCHAR AND
    (publications.intent_path = %(p_path)s::VARCHAR OR publications.live_path = %(p_path)s::VARCHAR) AND
    publications.topic_id IS DISTINCT
FROM %(p_topic_id)s::BIGINT
LIMIT %(param_1)s::INTEGER
