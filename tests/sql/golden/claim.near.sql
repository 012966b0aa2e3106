WITH k AS (
  SELECT known_in.site_id AS site_id, known_in.stage AS stage, known_in.priority AS priority, known_in.floor_at AS
      floor_at, known_in.floor_id AS floor_id, coalesce(lead(known_in.site_id) OVER (ORDER BY known_in.site_id,
      known_in.stage, known_in.priority), %(p_end)s::BIGINT) AS end_site_id, coalesce(lead(known_in.stage) OVER (ORDER
      BY known_in.site_id, known_in.stage, known_in.priority), '') AS end_stage, coalesce(lead(known_in.priority) OVER
      (ORDER BY known_in.site_id, known_in.stage, known_in.priority), 0) AS end_priority
  FROM json_to_recordset(CAST(%(known)s::JSON AS JSON)) AS known_in(site_id BIGINT, stage TEXT, priority SMALLINT,
      floor_at TIMESTAMP WITH TIME ZONE, floor_id BIGINT)
)
SELECT found.site_id, found.stage, found.priority, found.run_at, found.id, found.run_at <= statement_timestamp() AND
    (EXISTS (
  SELECT *
  FROM sites
  WHERE sites.id = found.site_id AND sites.state = 'active'
)) AND NOT (EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = found.site_id AND stages.name = found.stage AND stages.state = 'paused'
)) AS ready, statement_timestamp() AS at, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint + age(pg_snapshot_xmin(pg_current_snapshot())::xid) AS next
FROM k
LEFT OUTER JOIN LATERAL (
  SELECT anon_1.site_id AS site_id, anon_1.stage AS stage, anon_1.priority AS priority, anon_1.run_at AS run_at,
      anon_1.id AS id
  FROM LATERAL (
    SELECT own.site_id AS site_id, own.stage AS stage, own.priority AS priority, own.run_at AS run_at, own.id AS id
    FROM jobs AS own
    WHERE own.state = 'pending' AND own.site_id = k.site_id AND own.stage = k.stage AND own.priority = k.priority AND
        (own.run_at, own.id) > (k.floor_at, k.floor_id)
    ORDER BY own.site_id, own.stage, own.priority, own.run_at, own.id
    LIMIT 1
  ) AS anon_1
  UNION ALL
  SELECT anon_2.site_id AS site_id, anon_2.stage AS stage, anon_2.priority AS priority, anon_2.run_at AS run_at,
      anon_2.id AS id
  FROM LATERAL (
    SELECT other.site_id AS site_id, other.stage AS stage, other.priority AS priority, other.run_at AS run_at, other.id
        AS id
    FROM jobs AS other
    WHERE other.state = 'pending' AND (other.site_id, other.stage, other.priority) > (k.site_id, k.stage, k.priority)
        AND (other.site_id, other.stage, other.priority) < (k.end_site_id, k.end_stage, k.end_priority)
    ORDER BY other.site_id, other.stage, other.priority, other.run_at, other.id
    LIMIT 1
  ) AS anon_2
) AS found ON true
