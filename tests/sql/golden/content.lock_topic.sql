SELECT topics.id
FROM topics
WHERE topics.id = %(p_topic_id)s::BIGINT
FOR NO KEY UPDATE
