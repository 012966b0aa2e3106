SELECT sites.id, CAST(sites.settings -> %(settings_1)s::VARCHAR AS TEXT) AS paths, CAST(sites.settings ->
    %(settings_2)s::VARCHAR AS TEXT) AS fingerprints, EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = sites.id AND stages.state != 'retired'
) AS staged
FROM sites
WHERE sites.slug = %(p_slug)s::VARCHAR
