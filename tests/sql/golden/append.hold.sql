WITH held AS (
  SELECT lanes.id AS lane_id, lanes.name AS name, lanes.state AS state, lanes.next_position AS next_position
  FROM lanes
  WHERE lanes.site_id = (
    SELECT sites.id
    FROM sites
    WHERE sites.slug = %(p_slug)s::VARCHAR
  ) AND lanes.name = any(CAST(%(p_names)s::TEXT[] AS TEXT[]))
  ORDER BY lanes.id
  FOR NO KEY UPDATE
)
SELECT sites.id, CAST(sites.settings -> %(settings_1)s::VARCHAR AS TEXT) AS paths, CAST(sites.settings ->
    %(settings_2)s::VARCHAR AS TEXT) AS fingerprints, EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = sites.id AND stages.state != 'retired'
) AS staged, held.lane_id, held.name, held.state, held.next_position
FROM sites
LEFT OUTER JOIN held ON true
WHERE sites.slug = %(p_slug)s::VARCHAR
