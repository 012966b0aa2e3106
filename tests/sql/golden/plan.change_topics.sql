UPDATE topics
SET title=changes_in.title, type=changes_in.type, brief=changes_in.brief, input_hash=changes_in.input_hash,
    pass=(topics.pass + changes_in.again)
FROM json_to_recordset(CAST(%(changes)s::JSON AS JSON)) AS changes_in(id BIGINT, title TEXT, type TEXT, brief JSONB,
    input_hash TEXT, again INTEGER)
WHERE topics.id = changes_in.id
RETURNING topics.id, topics.slug
