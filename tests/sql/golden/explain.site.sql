SELECT sites.id, sites.slug, sites.state, sites.changed, sites.built, (
  SELECT jobs.id
  FROM jobs
  WHERE jobs.site_id = sites.id AND jobs.topic_id IS NULL AND jobs.finished_at IS NULL
  LIMIT 1
) AS assembly, statement_timestamp() AS now
FROM sites
WHERE sites.id = %(p_site_id)s::BIGINT
