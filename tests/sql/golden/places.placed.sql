UPDATE topics
SET placed_at=clock_timestamp()
WHERE topics.id = %(p_topic_id)s::BIGINT
