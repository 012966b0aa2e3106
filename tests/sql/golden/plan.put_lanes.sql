INSERT INTO lanes (site_id, name)
SELECT %(p_site_id)s::BIGINT AS anon_1, names_in.name
FROM json_to_recordset(CAST(%(names)s::JSON AS JSON)) AS names_in(name TEXT)
ORDER BY names_in.name
ON CONFLICT DO NOTHING
