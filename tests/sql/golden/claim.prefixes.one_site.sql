WITH RECURSIVE moment AS (
  SELECT statement_timestamp() AS at, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
      pg_snapshot_xmin(pg_current_snapshot())::text::bigint + age(pg_snapshot_xmin(pg_current_snapshot())::xid) AS next
), walk(site_id, stage, priority, run_at, id) AS (
  SELECT seed.site_id AS site_id, seed.stage AS stage, seed.priority AS priority, seed.run_at AS run_at, seed.id AS id
  FROM (
    SELECT first.site_id AS site_id, first.stage AS stage, first.priority AS priority, first.run_at AS run_at, first.id
        AS id
    FROM jobs AS first
    WHERE first.state = 'pending' AND first.site_id = %(p_site_id)s::BIGINT
    ORDER BY first.site_id, first.stage, first.priority, first.run_at, first.id
    LIMIT 1
  ) AS seed
  UNION ALL
  SELECT step.site_id AS site_id, step.stage AS stage, step.priority AS priority, step.run_at AS run_at, step.id AS id
  FROM walk
  JOIN LATERAL (
    SELECT n.site_id AS site_id, n.stage AS stage, n.priority AS priority, n.run_at AS run_at, n.id AS id
    FROM jobs AS n
    WHERE n.state = 'pending' AND n.site_id = %(p_site_id)s::BIGINT AND (n.site_id, n.stage, n.priority) >
        (walk.site_id, walk.stage, walk.priority)
    ORDER BY n.site_id, n.stage, n.priority, n.run_at, n.id
    LIMIT 1
  ) AS step ON true
)
SELECT walk.site_id, walk.stage, walk.priority, walk.run_at, walk.id, walk.run_at <= moment.at AND (EXISTS (
  SELECT *
  FROM sites
  WHERE sites.id = walk.site_id AND sites.state = 'active'
)) AND NOT (EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = walk.site_id AND stages.name = walk.stage AND stages.state = 'paused'
)) AS ready, moment.at, moment.oldest, moment.next
FROM moment
LEFT OUTER JOIN walk ON true
ORDER BY walk.site_id, walk.stage, walk.priority
