SELECT names.name
FROM unnest(CAST(%(p_names)s::TEXT[] AS TEXT[])) AS names(name)
WHERE NOT (EXISTS (
  SELECT *
  FROM lanes
  WHERE lanes.site_id = %(p_site_id)s::BIGINT AND lanes.name = names.name
))
