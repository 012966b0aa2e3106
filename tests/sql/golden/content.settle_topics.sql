UPDATE topics
SET made_from=coalesce(settled_in.made_from, topics.made_from), released=(topics.released OR settled_in.released)
FROM json_to_recordset(CAST(%(settled)s::JSON AS JSON)) AS settled_in(topic_id BIGINT, made_from TEXT, released BOOLEAN)
WHERE topics.id = settled_in.topic_id
