SELECT count(*) AS count_1
FROM topics
WHERE topics.site_id = %(p_site_id)s::BIGINT
