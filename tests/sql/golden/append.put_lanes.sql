INSERT INTO lanes (site_id, name)
SELECT %(p_site_id)s::BIGINT AS anon_1, names.name
FROM unnest(CAST(%(p_names)s::TEXT[] AS TEXT[])) AS names(name)
WHERE NOT (EXISTS (
  SELECT *
  FROM lanes
  WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = names.name
))
ORDER BY names.name
ON CONFLICT DO NOTHING
RETURNING lanes.id
