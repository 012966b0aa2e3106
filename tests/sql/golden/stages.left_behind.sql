SELECT ids.id
FROM (
  SELECT jobs.id AS id
  FROM (
    SELECT gone.name AS name
    FROM stages AS gone
    WHERE gone.site_id = %(p_site_id)s::BIGINT AND gone.state = 'retired' AND (EXISTS (
      SELECT later.name
      FROM stages AS later
      WHERE later.site_id = gone.site_id AND later.ordinal > gone.ordinal AND later.state != 'retired'
    ))
  ) AS retired
  JOIN jobs ON jobs.site_id = %(p_site_id)s::BIGINT AND jobs.stage = retired.name
  WHERE jobs.state = 'pending'
  UNION ALL
  SELECT jobs.id AS id
  FROM (
    SELECT gone.name AS name
    FROM stages AS gone
    WHERE gone.site_id = %(p_site_id)s::BIGINT AND gone.state = 'retired' AND (EXISTS (
      SELECT later.name
      FROM stages AS later
      WHERE later.site_id = gone.site_id AND later.ordinal > gone.ordinal AND later.state != 'retired'
    ))
  ) AS retired
  JOIN lanes ON lanes.site_id = %(p_site_id)s::BIGINT
  JOIN gates ON gates.lane_id = lanes.id AND gates.stage = retired.name
  JOIN jobs ON jobs.gate_id = gates.id
  WHERE jobs.state = 'waiting'
  UNION ALL
  SELECT jobs.id AS id
  FROM (
    SELECT gone.name AS name
    FROM stages AS gone
    WHERE gone.site_id = %(p_site_id)s::BIGINT AND gone.state = 'retired' AND (EXISTS (
      SELECT later.name
      FROM stages AS later
      WHERE later.site_id = gone.site_id AND later.ordinal > gone.ordinal AND later.state != 'retired'
    ))
  ) AS retired
  JOIN jobs ON jobs.site_id = %(p_site_id)s::BIGINT AND jobs.stage = retired.name
  WHERE jobs.state = 'waiting' AND jobs.gate_id IS NULL
) AS ids
ORDER BY ids.id
LIMIT %(p_limit)s::INTEGER
