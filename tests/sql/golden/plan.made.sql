UPDATE topics
SET made_from=topics.input_hash
WHERE topics.id = any(%(p_topic_ids)s::BIGINT[])
