SELECT jobs.site_id, jobs.stage, jobs.priority
FROM jobs
WHERE jobs.state = 'pending' AND jobs.alone AND jobs.run_at <= statement_timestamp() AND jobs.site_id =
    %(p_site_id)s::BIGINT AND (EXISTS (
  SELECT *
  FROM sites
  WHERE sites.id = jobs.site_id AND sites.state = 'active'
)) AND NOT (EXISTS (
  SELECT *
  FROM stages
  WHERE stages.site_id = jobs.site_id AND stages.name = jobs.stage AND stages.state = 'paused'
))
GROUP BY jobs.site_id, jobs.stage, jobs.priority
ORDER BY min(jobs.run_at)
