INSERT INTO findings (topic_id, revision_id, fence, rule, severity, message, line, column_number)
SELECT found_in.topic_id, found_in.revision_id, found_in.fence, found_in.rule, found_in.severity, found_in.message,
    found_in.line, found_in.column_number
FROM json_to_recordset(CAST(%(found)s::JSON AS JSON)) AS found_in(topic_id BIGINT, revision_id BIGINT, fence BIGINT,
    rule TEXT, severity TEXT, message TEXT, line INTEGER, column_number INTEGER)
