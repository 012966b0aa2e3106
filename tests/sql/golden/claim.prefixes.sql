WITH RECURSIVE walk(site_id, stage, priority) AS (
  SELECT seed.site_id AS site_id, seed.stage AS stage, seed.priority AS priority
  FROM (
    SELECT first.site_id AS site_id, first.stage AS stage, first.priority AS priority
    FROM jobs AS first
    WHERE first.state = 'pending'
    ORDER BY first.site_id, first.stage, first.priority
    LIMIT 1
  ) AS seed
  UNION ALL
  SELECT step.site_id AS site_id, step.stage AS stage, step.priority AS priority
  FROM walk
  JOIN LATERAL (
    SELECT n.site_id AS site_id, n.stage AS stage, n.priority AS priority
    FROM jobs AS n
    WHERE n.state = 'pending' AND (n.site_id, n.stage, n.priority) > (walk.site_id, walk.stage, walk.priority)
    ORDER BY n.site_id, n.stage, n.priority
    LIMIT 1
  ) AS step ON true
)
SELECT walk.site_id, walk.stage, walk.priority
FROM walk
WHERE (EXISTS (
  SELECT *
  FROM jobs AS d
  WHERE d.state = 'pending' AND d.site_id = walk.site_id AND d.stage = walk.stage AND d.priority = walk.priority AND
      d.run_at <= statement_timestamp()
)) AND (EXISTS (
  SELECT *
  FROM sites
  WHERE sites.id = walk.site_id AND sites.state = 'active'
)) AND NOT (EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = walk.site_id AND stages.name = walk.stage AND stages.state = 'paused'
))
ORDER BY walk.site_id, walk.stage, walk.priority
