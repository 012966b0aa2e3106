SELECT topics.site_id, topics.path
FROM json_to_recordset(CAST(%(asked)s::JSON AS JSON)) AS asked_in(site_id BIGINT, path TEXT)
JOIN topics ON topics.site_id = asked_in.site_id AND topics.path = asked_in.path
