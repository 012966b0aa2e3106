SELECT count(DISTINCT publications.topic_id) AS count_1
FROM publications
WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.live_path IS NOT NULL
